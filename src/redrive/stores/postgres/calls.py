"""Runs named statements on any connection of the pool, each a transaction of its own."""

from __future__ import annotations

from typing import Any

from redrive.stores.postgres.pool import Pool
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def fetch(pool: Pool, name: str, *args: Any) -> list[Any]:
    """Returns the rows of a named statement."""
    found: list[Any] = await pool.run(lambda connection: connection.fetch(SQL[name], *args))
    return found


def touched(status: str) -> int:
    """Returns how many rows a statement has changed, by what the server says of it: "DELETE 5"."""
    count = status.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0


async def value(pool: Pool, name: str, *args: Any) -> Any:
    """Returns the first value of a named statement."""
    return await pool.run(lambda connection: connection.fetchval(SQL[name], *args))
