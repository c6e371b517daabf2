"""Reads figures for the metrics of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from redrive.kernel.figures import LATE_AFTER_S, MOST_COUNTED, Figures
from redrive.stores.figures import MOST_VALUES, read
from redrive.stores.postgres.pool import Pool
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "figures.sql")


async def figures(pool: Pool) -> Figures:
    args = (MOST_VALUES, MOST_COUNTED, LATE_AFTER_S)
    text = await pool.run(lambda connection: connection.fetchval(SQL["figures"], *args))
    return await asyncio.to_thread(read, text)  # with many kinds it is long


async def overdue(pool: Pool, ages: Mapping[str, float], but: Sequence[str], most: Mapping[str, int]) -> dict[str, int]:
    caps = [most.get(queue, MOST_COUNTED) for queue in ages]
    args = (list(ages), list(ages.values()), list(but), caps)
    rows = await pool.run(lambda connection: connection.fetch(SQL["overdue"], *args))
    return {row["queue"]: row["n"] for row in rows if row["n"]}
