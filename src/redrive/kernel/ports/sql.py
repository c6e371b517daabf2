"""What only stores that speak SQL can do: tables of features, queries of an application's own tables, accounts, and
transactions that a handler writes in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from redrive.errors import ConfigError

if TYPE_CHECKING:
    from redrive.kernel.machine import Transition

NEEDS_SQL = "keep it in SQLite or PostgreSQL: sqlite:///path/to/file.db, postgresql://user@host/database"


class Transaction(Protocol):
    """A database transaction that a handler writes in; its completion commits with it."""

    async def execute(self, sql: str, *args: Any) -> Any: ...
    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...

    def entered(self) -> AbstractContextManager[None]:
        """Makes the calling context one that is inside: a thread that works in it did not open it itself."""

    def abort(self) -> None:
        """Rolls back without waiting for it, from outside: its handler hangs. What that still does is refused."""


class Sql(Protocol):
    """Reads by SQL, and the transactions of handlers. What a feature writes to its own tables goes with a Commit
    (``Rows``)."""

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        """Returns the rows of a feature's own named statement, which only reads."""

    async def answer(self, query: str, seconds: float) -> Any:
        """Returns the first value of a query of the application's own tables; None where it has no row. It cannot write
        anything, and has so many seconds."""

    async def balance(self, account: str) -> int:
        """Returns what is on an account; 0 for one that nobody has used."""

    def transaction(self, settlement: Callable[[], Transition]) -> AbstractAsyncContextManager[Transaction]:
        """Opens a transaction of the store's own database that applies ``settlement()`` as its last statement."""


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

    def transaction(self, settlement: Callable[[], Transition]) -> NoReturn:
        self._refuse("ctx.transaction()")

    def _refuse(self, what: str) -> NoReturn:
        raise ConfigError(f"{what} needs a store that speaks SQL, and {self._where} does not", hint=NEEDS_SQL)
