"""Housekeeping: prunes what is past its keep, and adds up the store's own time series."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from redrive.kernel.reads import Count
from redrive.kernel.retention import FeatureRule, Retention
from redrive.kernel.series import (
    Cell,
    Document,
    Key,
    Resolution,
    SeriesQuery,
    SeriesRow,
    Sums,
    read,
    sampled,
)
from redrive.kernel.task import State
from redrive.stores.features import Features
from redrive.stores.postgres.diagnose import SQL as DIAGNOSE
from redrive.stores.postgres.pool import SQL, Connection, Pool, fetch, touched
from redrive.stores.upkeep import SHEETS, add_to_series, prune_features, prune_in_pieces, series_ends, series_rows

# Removes what is past its keep, in bounded pieces, by ``functions/prune.sql``.

ROWS_PER_PIECE = 5000


async def prune(pool: Pool, keep: Retention, features: Features) -> int:
    """Removes what is past its keep; returns how many rows went."""

    async def piece() -> tuple[int, bool]:
        [(gone, more)] = await fetch(pool, "prune", json.dumps(keep.values()), ROWS_PER_PIECE)
        return gone, more

    removed = await prune_in_pieces(piece)
    return removed + await prune_features(keep.features, lambda rule: _of_feature(pool, rule, features))


async def _of_feature(pool: Pool, rule: FeatureRule, features: Features) -> tuple[int, bool]:
    text = features.statement(rule.feature, rule.statement)

    async def work(connection: Connection) -> int:
        before = await connection.fetchval(SQL["days_ago"], rule.days)
        return touched(await connection.execute(text, before, ROWS_PER_PIECE))

    gone = await pool.run(work)
    return gone, gone >= ROWS_PER_PIECE


# The store's own time series: sheets of workers are added up, and looked at.

ROWS = 500  # of the series that are written at once


class Series:
    """Looks at the series. Each call sees one snapshot."""

    pool: Pool

    async def series(self, which: SeriesQuery) -> list[SeriesRow]:
        if which.ends:
            return series_ends(which.since, *await self._look("ended", which.since))
        args = (which.resolution.value, which.since, which.queue, which.kind)
        return series_rows(which, *await self._look("series", *args))

    async def _look(self, name: str, *args: Any) -> tuple[list[Any], list[Any]]:
        async def look(connection: Any) -> tuple[list[Any], list[Any]]:
            return await connection.fetch(SQL[name], *args), await connection.fetch(SQL["sheets"])

        return await self.pool.read(look, snapshot=True)


async def add_up(pool: Pool) -> int:
    """Adds what workers have sent, and a look at how much is there, to the series; returns how many sheets it took.
    One does it at a time: whoever comes meanwhile leaves it to that one."""

    async def work(connection: Any) -> int:
        if not await connection.fetchval(SQL["begin_series"]):
            return 0
        now = await connection.fetchval(SQL["now"])
        sheets = await connection.fetch(SQL["take_sheets"], SHEETS)
        names = [tuple(row) for row in await connection.fetch(SQL["series_names"], Resolution.DAY.start(now))]
        counts = await connection.fetch(SQL["counts"])
        oldest = await connection.fetch(DIAGNOSE["oldest"])
        # Beside the loop: there may be many kinds, and this process has handlers to run.
        adding = await asyncio.to_thread(_cells, now, counts, oldest, sheets, names)
        for first in range(0, len(adding), ROWS):
            await _add(connection, dict(adding[first : first + ROWS]))
        return len(sheets)

    return await pool.run(work, atomic=True)


async def _add(connection: Any, adding: Mapping[Cell, Document]) -> None:
    keys = [(cell.resolution.value, cell.at, cell.queue, cell.kind) for cell in adding]
    stored = [
        (Cell(Resolution(row["resolution"]), row["at"], row["queue"], row["kind"]), row["document"])
        for row in await connection.fetch(SQL["series_stored"], *_columns(keys))
    ]
    await connection.execute(SQL["put_series"], *_columns(add_to_series(adding, stored)))


def _cells(
    now: datetime, counted: Sequence[Any], oldest: Sequence[Any], sheets: Sequence[Any], names: Sequence[Key]
) -> list[tuple[Cell, Document]]:
    """Returns what is added to which rows: a look at how much is there, and what workers have sent."""
    counts = (
        Count(row["queue"], row["kind"], state, row[state.value])
        for row in counted
        for state in State
        if row[state.value]
    )
    sums = Sums(sampled(now, counts, {row["queue"]: row["since"] for row in oldest}))
    for at, text in sheets:
        sums.add(read(text, at))
    return list(sums.cells(names).items())


def _columns(rows: Any) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]
