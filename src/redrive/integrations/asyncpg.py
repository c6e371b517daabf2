"""asyncpg: a connection, one lent by a pool, or the one that ``ctx.transaction()`` gives on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.integrations import postgres
from redrive.integrations.waiting import before_the_first_statement
from redrive.kernel.task import Enqueued, NewTask


async def on_connection(connection: Any, tasks: Sequence[NewTask]) -> list[Enqueued]:
    await before_the_first_statement()
    with postgres.explained(connection):
        return postgres.answers(tasks, await connection.fetch(postgres.NUMBERED, *postgres.params(tasks)))
