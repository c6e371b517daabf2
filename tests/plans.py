"""How a database would carry a statement out: plans are asserted, and not times."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import asyncpg


async def postgres_plan(connection: asyncpg.Connection, sql: str, args: list[Any]) -> str:
    """Returns the plan that the server uses when it has seen a statement several times, and could do with one for all
    values."""
    await connection.execute(f"prepare looked as {sql}")
    given = ", ".join("null" if one is None else f"'{one}'" for one in args)
    how = "explain (analyze, timing off, buffers)" if os.environ.get("REDRIVE_TEST_ROWS") else "explain (costs off)"
    try:
        for _ in range(7):
            rows = await connection.fetch(f"{how} execute looked{f' ({given})' if given else ''}")
    finally:
        await connection.execute("deallocate looked")
    return "\n".join(row[0] for row in rows)


def sqlite_plan(connection: sqlite3.Connection, sql: str, args: list[Any]) -> str:
    """Returns the steps by which SQLite would find the rows."""
    return "\n".join(row[3] for row in connection.execute(f"explain query plan {sql}", args))
