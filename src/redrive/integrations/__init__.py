"""Joining the caller's own database transaction.

Every family of connections reduces to "run this SQL with these parameters and give me the rows". Nothing here commits,
rolls back or closes what is the caller's, and no library is imported that the caller does not already use: a
connection is recognised by the names of its classes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from redrive.errors import InvalidInput
from redrive.integrations import django, postgres, sqlalchemy, sqlite
from redrive.integrations.own_commit import OwnCommit
from redrive.kernel.task import Enqueued

__all__ = ["SUPPORTED", "OwnCommit", "apply_on"]

Answers = list[Enqueued] | Awaitable[list[Enqueued]]

# (top-level package, class) of a connection or of one of its bases → how to apply to it.
FAMILIES: Mapping[tuple[str, str], Callable[[Any, OwnCommit], Answers]] = {
    ("psycopg", "Connection"): postgres.on_psycopg,
    ("psycopg", "Cursor"): lambda cursor, own: postgres.on_psycopg(cursor.connection, own),
    ("psycopg", "AsyncConnection"): postgres.on_async_psycopg,
    ("psycopg", "AsyncCursor"): lambda cursor, own: postgres.on_async_psycopg(cursor.connection, own),
    ("psycopg2", "connection"): postgres.on_psycopg2,
    ("psycopg2", "cursor"): lambda cursor, own: postgres.on_psycopg2(cursor.connection, own),
    ("asyncpg", "Connection"): postgres.on_asyncpg,
    ("asyncpg", "PoolConnectionProxy"): postgres.on_asyncpg,
    ("sqlite3", "Connection"): sqlite.on_connection,
    ("sqlite3", "Cursor"): lambda cursor, own: sqlite.on_connection(cursor.connection, own),
    ("aiosqlite", "Connection"): sqlite.on_aiosqlite,
    ("sqlalchemy", "Connection"): sqlalchemy.on_connection,
    ("sqlalchemy", "Session"): sqlalchemy.on_session,
    ("sqlalchemy", "scoped_session"): lambda scoped, own: sqlalchemy.on_session(scoped(), own),
    ("sqlalchemy", "AsyncConnection"): sqlalchemy.on_async_connection,
    ("sqlalchemy", "AsyncSession"): sqlalchemy.on_async_session,
    ("sqlalchemy", "async_scoped_session"): lambda scoped, own: sqlalchemy.on_async_session(scoped(), own),
    ("django", "BaseDatabaseWrapper"): django.on_connection,
    ("django", "ConnectionProxy"): django.on_connection,
    ("redrive", "LentConnection"): postgres.on_asyncpg,
    ("redrive", "SqliteTransaction"): sqlite.on_transaction,
    ("redrive", "BlockingTransaction"): lambda blocking, own: _on_blocking(blocking, own),
}

SUPPORTED = (
    "psycopg 3 Connection or AsyncConnection, psycopg2 connection, asyncpg Connection, sqlite3 Connection, "
    "aiosqlite Connection, SQLAlchemy 2 Session, AsyncSession, Connection or AsyncConnection, django.db.connection, "
    "or what `with ctx.transaction() as tx` gives"
)


def apply_on(connection: Any, own: OwnCommit) -> Answers:
    """Applies inside the transaction of ``connection``.

    A blocking connection is answered at once, in the calling thread; an asynchronous one with an awaitable, which has
    done nothing before it is awaited.
    """
    for name in _names(connection):
        if name in FAMILIES:
            return FAMILIES[name](connection, own)
    kind = type(connection)
    raise InvalidInput(
        f"connection={kind.__module__}.{kind.__qualname__} is not a connection that redrive can enqueue on",
        hint=f"use one of: {SUPPORTED}",
    )


def _names(connection: Any) -> Iterator[tuple[str, str]]:
    # A proxy (tracing, werkzeug's locals) shows in __class__ what it stands for.
    for kind in (*type(connection).__mro__, *connection.__class__.__mro__):
        yield kind.__module__.partition(".")[0], kind.__name__


def _on_blocking(blocking: Any, own: OwnCommit) -> list[Enqueued]:
    """In a ``def`` handler: the transaction lives on the worker's loop, this thread waits for it."""
    answers: list[Enqueued] = blocking.wait(apply_on(blocking.transaction, own))
    return answers
