"""Refuses tasks whose connection is another store than the one whose transaction they are to be part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redrive.errors import InvalidInput
from redrive.observe.current import CURRENT

Known = Callable[[Any], str | None]
# Drivers that are of one database only; others say nothing by themselves.
DIALECTS = {
    "sqlite3": "sqlite",
    "aiosqlite": "sqlite",
    "psycopg": "postgres",
    "psycopg2": "postgres",
    "asyncpg": "postgres",
}


def insist_on_same(
    transaction: Any, connection: str, *, said: bool, default: str, sqlite: bool, known_as: Known = lambda _: None
) -> None:
    """Refuses tasks for ``connection`` in a transaction of another one. The transaction of a handler's task is on the
    connection of that; one of the application's own is where its driver says (``known_as`` returns the name of that
    connection), else on the default connection, unless ``said`` otherwise. ``sqlite``: that is what the connection is:
    a transaction of another database is not of it, whatever is said."""
    own = _of_handler(transaction)
    if own is None and (known := _dialect(transaction)) is not None and (known == "sqlite") is not sqlite:
        what, driver = "SQLite" if sqlite else "PostgreSQL", _package(type(transaction))
        raise InvalidInput(
            f"the connection {connection} is {what}, and its tasks cannot be part of a transaction of {driver}",
            hint="enqueue it without connection=: then it is not part of the transaction",
        )
    own = own or known_as(transaction)
    if connection == own or (own is None and (said or connection == default)):
        return
    hint = "enqueue it without connection=: then it is not part of the transaction"
    if own is None:
        hint = f'{hint}; or say on="{connection}" if this is a transaction of that database'
    raise InvalidInput(
        f"the task goes to the connection {connection}, and cannot be part of a transaction on {own or default}",
        hint=hint,
    )


def _of_handler(transaction: Any) -> str | None:
    """Returns the connection of what ``ctx.transaction()`` gave; None for other transactions."""
    if not type(transaction).__module__.startswith("redrive."):
        return None
    return getattr(CURRENT.get(), "connection", None)


def _dialect(transaction: Any) -> str | None:
    return next((DIALECTS[name] for name in map(_package, type(transaction).__mro__) if name in DIALECTS), None)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]
