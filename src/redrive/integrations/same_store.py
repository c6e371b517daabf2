"""Refuses tasks whose connection is another store than the one whose transaction they are to be part of; finds out
which PostgreSQL database that transaction is on, as far as its driver says so without asking the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redrive.errors import InvalidInput
from redrive.observe.current import CURRENT
from redrive.stores.postgres.url import Place, place

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
    transaction: Any, connection: str, *, explicit: bool, default: str, sqlite: bool, known_as: Known = lambda _: None
) -> None:
    """Refuses tasks for ``connection`` in a transaction of another one. The transaction of a handler's task is on the
    connection of that; one of the application's own is where its driver says (``known_as`` returns the name of that
    connection), else on the default connection, unless the caller names one (``explicit``). ``sqlite``: that is what
    the connection is: a transaction of another database is not of it, whatever is named."""
    own = _of_handler(transaction)
    if own is None and (known := _dialect(transaction)) is not None and (known == "sqlite") is not sqlite:
        what, driver = "SQLite" if sqlite else "PostgreSQL", _package(type(transaction))
        raise InvalidInput(
            f"the connection {connection} is {what}, and its tasks cannot be part of a transaction of {driver}",
            hint="enqueue it without connection=: then it is not part of the transaction",
        )
    own = own or known_as(transaction)
    if connection == own or (own is None and (explicit or connection == default)):
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


def database_of(transaction: Any) -> Place | None:
    """Returns where a transaction of PostgreSQL is; None where that cannot be told from here."""
    for kind in type(transaction).__mro__:
        found = _FAMILIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return _place_or_none(found, transaction)
    return None


def _place_or_none(found: Callable[[Any], Place | None], transaction: Any) -> Place | None:
    try:
        return found(transaction)
    except Exception:  # what it does not say, in whichever way, is not known; the caller then goes by what was said
        return None


def _of_libpq(connection: Any) -> Place | None:
    info = connection.info
    return place(info.host, info.port, info.dbname)


def _of_asyncpg(connection: Any) -> Place | None:
    """Returns what asyncpg keeps for itself: it has no public name for where a connection is."""
    address = connection._addr
    host, port = address if isinstance(address, tuple) else (address, None)
    return place(host, port, connection._params.database)


def _of_engine(engine: Any) -> Place | None:
    url = engine.url
    options = url.query
    if url.get_backend_name() != "postgresql" or "service" in options or not isinstance(options.get("host", ""), str):
        return None
    return place(url.host or options.get("host"), url.port or options.get("port"), url.database)


def _of_django(connection: Any) -> Place | None:
    if connection.vendor != "postgresql" or connection.settings_dict.get("OPTIONS", {}).get("service"):
        return None
    options = connection.settings_dict
    return place(options["HOST"], options["PORT"] or None, options["NAME"])


def _names() -> Iterator[tuple[tuple[str, str], Callable[[Any], Place | None]]]:
    for family in ("Connection", "AsyncConnection"):
        yield ("psycopg", family), _of_libpq
        yield ("sqlalchemy", family), lambda connection: _of_engine(connection.engine)
    for family in ("Cursor", "AsyncCursor"):
        yield ("psycopg", family), lambda cursor: _of_libpq(cursor.connection)
    yield ("psycopg2", "connection"), _of_libpq
    yield ("psycopg2", "cursor"), lambda cursor: _of_libpq(cursor.connection)
    yield ("asyncpg", "Connection"), _of_asyncpg
    yield ("asyncpg", "PoolConnectionProxy"), lambda proxy: _of_asyncpg(proxy._con)
    yield ("sqlalchemy", "Session"), lambda session: _of_engine(session.get_bind().engine)
    yield ("sqlalchemy", "AsyncSession"), lambda session: _of_engine(session.get_bind().engine)
    for family in ("scoped_session", "async_scoped_session"):
        yield ("sqlalchemy", family), lambda scoped: _of_engine(scoped().get_bind().engine)
    yield ("django", "BaseDatabaseWrapper"), _of_django
    yield ("django", "ConnectionProxy"), _of_django


_FAMILIES = dict(_names())
