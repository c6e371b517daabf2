"""Finds out which PostgreSQL database a caller's transaction is on, as far as its driver says so without asking the
server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from redrive.stores.postgres.place import Place, place


def database_of(transaction: Any) -> Place | None:
    """Returns where a transaction of PostgreSQL is; None where that cannot be told from here."""
    for kind in type(transaction).__mro__:
        found = _FAMILIES.get((kind.__module__.partition(".")[0], kind.__name__))
        if found is not None:
            return _asked(found, transaction)
    return None


def _asked(found: Callable[[Any], Place | None], transaction: Any) -> Place | None:
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
    said = url.query
    if url.get_backend_name() != "postgresql" or "service" in said or not isinstance(said.get("host", ""), str):
        return None
    return place(url.host or said.get("host"), url.port or said.get("port"), url.database)


def _of_django(connection: Any) -> Place | None:
    if connection.vendor != "postgresql" or connection.settings_dict.get("OPTIONS", {}).get("service"):
        return None
    said = connection.settings_dict
    return place(said["HOST"], said["PORT"] or None, said["NAME"])


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
