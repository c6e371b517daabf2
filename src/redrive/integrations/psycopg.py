"""psycopg 3, blocking and asynchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.integrations import postgres
from redrive.integrations.own_commit import OwnCommit
from redrive.integrations.waiting import before_the_first_statement
from redrive.kernel.task import Enqueued

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

# The cursors are made here and not by the connection, whose own kind may want other placeholders (RawCursor) or give
# rows in another shape.


def on_connection(connection: Connection[Any], own: OwnCommit) -> list[Enqueued]:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    with postgres.explained(connection), Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(*postgres.call(own))
        return postgres.answers(own, cursor.fetchall())


async def on_async_connection(connection: AsyncConnection[Any], own: OwnCommit) -> list[Enqueued]:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    await before_the_first_statement()
    with postgres.explained(connection):
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(*postgres.call(own))
            return postgres.answers(own, await cursor.fetchall())
