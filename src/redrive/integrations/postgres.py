"""Applies to PostgreSQL through anybody's driver: one call of ``redrive.enqueue``, or of ``redrive.apply_own``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from redrive.errors import InvalidInput, RedriveError, SchemaError, StoreError
from redrive.integrations.own_commit import OwnCommit, Remedy, before_the_first_statement, causes, migrate
from redrive.kernel.task import Enqueued
from redrive.stores.postgres import codec
from redrive.stores.refusals import NEVER_NEGATIVE, below_zero, overdrawn
from redrive.stores.sql import statements

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from psycopg2.extensions import connection as Psycopg2Connection

NUMBERED = statements("redrive.integrations", "postgres.sql")
FORMAT = {name: re.sub(r"\$\d+", "%s", text) for name, text in NUMBERED.items()}
AUDIT = statements("redrive.stores.postgres", "statements.sql")["audit"].rstrip(";")

# invalid_schema_name, undefined_function, undefined_table, undefined_column
_SCHEMA = ("3F000", "42883", "42P01", "42703")
_PRIVILEGE = "42501"


def call(own: OwnCommit, *, numbered: bool = False) -> tuple[str, tuple[Any, ...]]:
    """Returns the one statement that applies it, and its arguments: text, numbers and arrays of them, since callers
    teach their connections other ways to send UUIDs, JSON and times."""
    texts = NUMBERED if numbered else FORMAT
    columns = [_column(column) for column in codec.columns(own.tasks)] if own.tasks else [[], *[None] * 12]
    if own.plain:
        declared = codec.declared(own.tasks)
        return (texts["enqueue_declared"], (*columns, declared)) if declared else (texts["enqueue"], tuple(columns))
    members = [_column(column) for column in codec.memberships(own.tasks)]
    joins = codec.joins(own.commit.joins) if own.commit.joins else None
    closed = [str(join_id) for join_id in own.closed]
    return texts["apply"], (
        joins,
        *columns,
        *members,
        closed,
        codec.postings(own.commit.postings),
        _rows(own),
        own.commit.all_or_none,
    )


def _column(values: list[Any] | None) -> list[Any] | None:
    return values and [_plain(value) for value in values]


def _rows(own: OwnCommit) -> str:
    """Returns statements with their argument: those of features, and the one that adds audit rows."""
    features = own.known("postgres")
    found: list[dict[str, Any]] = [
        {"statement": features.statement(rows.feature, rows.statement), "argument": rows.values}
        for rows in own.commit.rows
    ]
    if own.commit.audits:
        found.append({"statement": AUDIT, "argument": json.loads(codec.audits(own.commit.audits))})
    return json.dumps(found)


def _plain(value: Any) -> Any:
    match value:
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat()
    return value


def answers(own: OwnCommit, known: Iterable[Sequence[Any]]) -> list[Enqueued]:
    """``known`` are the rows of ``redrive.enqueue``: only tasks whose key already named another one. Those of
    ``redrive.apply_own`` also name postings that were there."""
    existing: dict[str, Enqueued] = {}
    for task_id, other, conflict, *repeated in known:
        if task_id is None:
            own.repeated.update(repeated)
        else:
            existing[task_id] = Enqueued(UUID(other), created=False, conflict=conflict)
    found = [existing.get(str(task.id)) or Enqueued(task.id) for task in own.tasks]
    own.commit.check_conflicts(found)
    return found


@contextmanager
def explained(driver_connection: Any, remedy: Remedy = migrate) -> Iterator[None]:
    """Say what to do when redrive's schema is missing or out of bounds; all other errors are the caller's own."""
    try:
        yield
    except Exception as error:
        refusal = _refusal(error, lambda: remedy(_url(driver_connection)))
        if refusal is None:
            raise
        raise refusal from error


def _refusal(error: Exception, remedy: Callable[[], str]) -> RedriveError | None:
    for cause in causes(error):
        # psycopg2 has another name for it.
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if state in _SCHEMA:
            return SchemaError(
                f"this connection's database has no usable redrive schema: {cause}",
                hint=remedy(),
            )
        if state == _PRIVILEGE:
            return StoreError(
                f"this connection's role may not enqueue: {cause}",
                hint="run: redrive migrate --grant-producer ROLE; for joins and features --grant-worker",
            )
        if NEVER_NEGATIVE in str(cause):
            details = (_detail(each) for each in causes(error))  # what wraps the driver's own error has none
            return below_zero(overdrawn(next(filter(None, details), None)))
    return None


def _detail(cause: BaseException) -> str | None:
    """Returns the DETAIL of an error, as psycopg or asyncpg keep it."""
    found: Any = getattr(getattr(cause, "diag", None), "message_detail", None) or getattr(cause, "detail", None)
    return found if isinstance(found, str) and overdrawn(found) else None


def _url(driver_connection: Any) -> str:
    """Returns the URL of this connection's database, without a password; empty where its driver (asyncpg) does not
    tell."""
    info: Any = getattr(driver_connection, "info", None)
    try:
        user, host, database = (quote(text or "", safe="") for text in (info.user, info.host, info.dbname))
        return f"postgresql://{user}@{host}:{info.port}/{database}"
    except Exception:  # it may be closed by now, or be another's connection with an ``info`` of another kind
        return ""


# -- drivers. Cursors are made here and not by the connection, whose own kind may want other placeholders (RawCursor)
# or give rows in another shape.


def on_psycopg(connection: Connection[Any], own: OwnCommit) -> list[Enqueued]:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    with explained(connection), Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(*call(own))
        return answers(own, cursor.fetchall())


async def on_async_psycopg(connection: AsyncConnection[Any], own: OwnCommit) -> list[Enqueued]:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    await before_the_first_statement()
    with explained(connection):
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(*call(own))
            return answers(own, await cursor.fetchall())


def on_psycopg2(connection: Psycopg2Connection, own: OwnCommit) -> list[Enqueued]:
    from psycopg2.extensions import cursor as plain_cursor

    if connection.async_:
        raise InvalidInput(
            "this psycopg2 connection is asynchronous (async_=True), and would have to be polled",
            hint="use an ordinary psycopg2 connection, or psycopg 3's AsyncConnection with `await app.enqueue(…)`",
        )
    with explained(connection), connection.cursor(cursor_factory=plain_cursor) as cursor:
        cursor.execute(*call(own))
        return answers(own, cursor.fetchall())


async def on_asyncpg(connection: Any, own: OwnCommit) -> list[Enqueued]:
    """On a connection, one lent by a pool, or the one that ``ctx.transaction()`` gives on PostgreSQL."""
    await before_the_first_statement()
    with explained(connection):
        sql, params = call(own, numbered=True)
        return answers(own, await connection.fetch(sql, *params))
