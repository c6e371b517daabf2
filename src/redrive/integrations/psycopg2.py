"""psycopg2: blocking connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.errors import InvalidInput
from redrive.integrations import postgres
from redrive.integrations.own_commit import OwnCommit
from redrive.kernel.task import Enqueued

if TYPE_CHECKING:
    from psycopg2.extensions import connection as Connection


def on_connection(connection: Connection, own: OwnCommit) -> list[Enqueued]:
    from psycopg2.extensions import cursor as plain_cursor

    if connection.async_:
        raise InvalidInput(
            "this psycopg2 connection is asynchronous (async_=True), and would have to be polled",
            hint="use an ordinary psycopg2 connection, or psycopg 3's AsyncConnection with `await app.enqueue(…)`",
        )
    # Not of the connection's own kind, which may give rows in another shape.
    with postgres.explained(connection), connection.cursor(cursor_factory=plain_cursor) as cursor:
        cursor.execute(*postgres.call(own))
        return postgres.answers(own, cursor.fetchall())
