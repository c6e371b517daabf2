"""psycopg 3, blocking and asynchronous."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redrive.integrations import postgres
from redrive.integrations.waiting import before_the_first_statement
from redrive.kernel.task import Enqueued, NewTask

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

# The cursors are made here and not by the connection, whose own kind may want other placeholders (RawCursor) or give
# rows in another shape.


def on_connection(connection: Connection[Any], tasks: Sequence[NewTask]) -> list[Enqueued]:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    with postgres.explained(connection), Cursor(connection, row_factory=tuple_row) as cursor:
        cursor.execute(postgres.FORMAT, postgres.params(tasks))
        return postgres.answers(tasks, cursor.fetchall())


async def on_async_connection(connection: AsyncConnection[Any], tasks: Sequence[NewTask]) -> list[Enqueued]:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    await before_the_first_statement()
    with postgres.explained(connection):
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(postgres.FORMAT, postgres.params(tasks))
            return postgres.answers(tasks, await cursor.fetchall())
