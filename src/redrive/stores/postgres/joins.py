"""Opens and closes joins; members arrive with their settlements, in ``functions/joins.sql``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from redrive.kernel.joins import NewJoin
from redrive.stores.postgres import codec
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def open_joins(connection: Connection, joins: Sequence[NewJoin]) -> None:
    if joins:
        await connection.execute(SQL["open_joins"], codec.joins(joins))


async def close_join(connection: Connection, join_id: UUID) -> None:
    await connection.execute(SQL["close_join"], join_id)


async def settle_empty(connection: Connection, joins: Iterable[NewJoin]) -> None:
    """Ends joins that got no members."""
    for join in joins:
        if not join.open:
            await close_join(connection, join.id)
