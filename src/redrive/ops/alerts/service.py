"""Looks at how queues stand against their objectives: from the store's own series, a few statements a minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from redrive.kernel.alerts.slo import BURST, WINDOWS, Objective, ServiceLevel, measure
from redrive.kernel.ports.store import Store
from redrive.kernel.series import ALL, Resolution, SeriesQuery

LOOKED_EVERY = timedelta(seconds=60)


async def look_again(
    store: Store,
    objectives: Mapping[str, Objective],
    known: Mapping[str, ServiceLevel],
    now: datetime,
    paused_kinds: Sequence[str] = (),
) -> dict[str, ServiceLevel]:
    """Returns how each queue stands, looked at again where that is a minute ago."""
    found: dict[str, ServiceLevel] = {}
    for queue, objective in objectives.items():
        last = known.get(queue)
        fresh = last is not None and last.at is not None and now - last.at < LOOKED_EVERY
        same = last is not None and last.objective == objective
        found[queue] = (
            last if last is not None and fresh and same else await _look(store, queue, objective, now, paused_kinds)
        )
    return found


async def look_at_all(store: Store, objectives: Mapping[str, Objective]) -> dict[str, ServiceLevel]:
    """Returns how each queue stands now."""
    return await look_again(store, objectives, {}, await store.now()) if objectives else {}


async def _look(
    store: Store, queue: str, objective: Objective, now: datetime, paused_kinds: Sequence[str]
) -> ServiceLevel:
    recent = await _starts(store, queue, objective, Resolution.MINUTE, now - WINDOWS["6h"])
    days = await _starts(store, queue, objective, Resolution.DAY, now - timedelta(days=objective.days))
    overdue = (await store.overdue({queue: objective.wait_seconds}, paused_kinds)).get(queue, 0)
    long = {queue: objective.wait_seconds + BURST.total_seconds()}
    lasting = (await store.overdue(long, paused_kinds)).get(queue, 0) if overdue else 0
    return measure(objective, recent, days, overdue, now, lasting)


async def _starts(
    store: Store, queue: str, objective: Objective, resolution: Resolution, since: datetime
) -> list[tuple[datetime, tuple[int, int]]]:
    rows = await store.series(SeriesQuery(resolution, resolution.start(since), queue))
    return [(row.at, objective.split(row.tally.wait)) for row in rows if (row.queue, row.kind) == (queue, ALL)]
