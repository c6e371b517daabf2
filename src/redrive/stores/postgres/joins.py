"""Opens and closes joins; members arrive with their settlements, in ``functions/joins.sql``."""

from __future__ import annotations

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


async def hold_joins(connection: Connection, adding: Sequence[UUID]) -> None:
    """Locks joins that get members by several statements: one order for all."""
    if len(set(adding)) > 1:
        await connection.execute(SQL["hold_joins"], list(adding))


async def opened_before(connection: Connection, joins: Sequence[NewJoin]) -> bool:
    """Returns whether an earlier try has opened these, and with that has brought in all of its Commit."""
    return bool(joins) and bool(await connection.fetch(SQL["known_joins"], [join.id for join in joins]))


async def arrive(connection: Connection, members: str | None) -> None:
    """Lets members arrive that ``redrive.move`` has left for after what features add."""
    if members is not None:
        await connection.execute(SQL["arrive"], members)
