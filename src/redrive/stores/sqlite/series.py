"""The store's own time series: sheets of workers are added up, and looked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from redrive.kernel.reads import Count
from redrive.kernel.series import Cell, Counted, Resolution, SeriesQuery, SeriesRow, Sums, read, sampled
from redrive.kernel.task import LIVE
from redrive.stores import series
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import to_datetime, to_micros
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "series.sql")
OLDEST = statements("redrive.stores.sqlite", "diagnose.sql")["oldest"]
EVERY_SHEET = -1
T = TypeVar("T")


class Series:
    """Looks at the series. Each call sees one snapshot."""

    async def read(self, look: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def series(self, which: SeriesQuery) -> list[SeriesRow]:
        name, args = "ended", list[Any]([to_micros(which.since)])
        if not which.ends:
            name, args = "rows", [which.resolution.value, *args, which.queue, which.kind]

        def look(session: Session) -> tuple[list[Any], list[Any]]:
            return session.gathered(SQL[name], *args), session.gathered(SQL["sheets"], EVERY_SHEET)

        found, fresh = await self.read(look)
        stored, sheets = [(to_datetime(at), *rest) for at, *rest in found], _sheets(fresh)
        return series.ends(which.since, stored, sheets) if which.ends else series.rows(which, stored, sheets)


def add_up(session: Session) -> int:
    """Adds what workers have sent, and a look at how much is there, to the series; returns how many sheets it took."""
    now = to_datetime(session.now)
    sheets = session.gathered(SQL["sheets"], series.SHEETS)
    if sheets:
        session.run(SQL["sheets_gone"], sheets[-1][0])
    today = to_micros(Resolution.DAY.start(now))
    names = [(queue, kind) for queue, kind in session.gathered(SQL["names"], today)]
    sums = Sums(entry for at, text in _sheets(sheets) for entry in read(text, at))
    sums.add(_look(session, now))
    adding = sums.cells(names)
    keys = dumps([[cell.resolution.value, to_micros(cell.at), cell.queue, cell.kind] for cell in adding])
    stored = [
        (Cell(Resolution(resolution), to_datetime(at), queue, kind), text)
        for resolution, at, queue, kind, text in session.gathered(SQL["stored"], keys)
    ]
    found = series.merged(adding, stored)
    session.run(SQL["put"], dumps([[resolution, to_micros(at), *rest] for resolution, at, *rest in found]))
    return len(sheets)


def _look(session: Session, now: datetime) -> list[Counted]:
    counts = [
        Count(queue, kind, state, n)
        for queue, kind, *numbers in session.rows(SQL["counts"])
        for state, n in zip(LIVE, numbers, strict=True)
        if n
    ]
    return sampled(now, counts, {queue: to_datetime(since) for queue, since in session.rows(OLDEST)})


def _sheets(found: list[Any]) -> list[tuple[datetime, str]]:
    return [(to_datetime(at), document) for _, at, document in found]
