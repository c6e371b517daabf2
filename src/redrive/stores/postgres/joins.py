"""Opens and closes joins; members arrive with their settlements, in ``functions/joins.sql``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

from redrive.kernel.joins import NewJoin
from redrive.stores.postgres import codec
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def open_joins(connection: Connection, joins: Sequence[NewJoin]) -> None:
    if joins:
        await connection.execute(SQL["open_joins"], codec.joins(joins))


async def close_joins(connection: Connection, join_ids: Sequence[UUID]) -> None:
    """Lets joins get no further members; those without any have ended."""
    if join_ids:
        await connection.execute(SQL["close_joins"], list(join_ids))


async def hold_joins(connection: Connection, adding: Sequence[UUID], members: str | None) -> None:
    """Locks joins that get members, together with those that members arrive at: one order for all."""
    if adding and members is not None:
        arriving = {UUID(member["id"]) for member in json.loads(members)}
        await connection.execute(SQL["hold_joins"], list(adding), list(arriving))


async def arrive(connection: Connection, members: str | None) -> None:
    """Lets members arrive that ``redrive.move`` has left for after what features add."""
    if members is not None:
        await connection.execute(SQL["arrive"], members)
