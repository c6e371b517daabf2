"""asyncpg: a connection, one lent by a pool, or the one that ``ctx.transaction()`` gives on PostgreSQL."""

from __future__ import annotations

from typing import Any

from redrive.integrations import postgres
from redrive.integrations.own_commit import OwnCommit
from redrive.integrations.waiting import before_the_first_statement
from redrive.kernel.task import Enqueued


async def on_connection(connection: Any, own: OwnCommit) -> list[Enqueued]:
    await before_the_first_statement()
    with postgres.explained(connection):
        sql, params = postgres.call(own, numbered=True)
        return postgres.answers(own, await connection.fetch(sql, *params))
