"""What only stores that speak SQL can do: tables of features, queries of an application's own tables, accounts."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from redrive.errors import ConfigError

NEEDS_SQL = "keep it in SQLite or PostgreSQL: sqlite:///path/to/file.db, postgresql://user@host/database"


class Sql(Protocol):
    """Reads by SQL. What a feature writes to its own tables goes with a Commit (``Rows``)."""

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        """Returns the rows of a feature's own named statement, which only reads."""

    async def answer(self, query: str, seconds: float) -> Any:
        """Returns the first value of a query of the application's own tables; None where it has no row. It cannot write
        anything, and has so many seconds."""

    async def balance(self, account: str) -> int:
        """Returns what is on an account; 0 for one that nobody has used."""


class NoSql:
    """Takes the place of ``Sql`` in a store that speaks none, and says which stores do. ``where``: its URL, as people
    may see it. Features that cannot do without are refused before (``Capabilities.tables``)."""

    def __init__(self, where: str) -> None:
        self._where = where

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        self._refuse(f"the feature {feature!r}")

    async def answer(self, query: str, seconds: float) -> Any:
        self._refuse("a query of tables")

    async def balance(self, account: str) -> int:
        self._refuse("an account")

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(f"{what} needs a store that speaks SQL, and {self._where} does not", hint=NEEDS_SQL)
