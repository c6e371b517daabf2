"""What workers do for projections besides projecting: rebuilds and comparisons, each by one worker at a time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from redrive.errors import ChangedMeanwhile, StoreUnavailable, StoreUnusable
from redrive.kernel.duty import Duty
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import Status
from redrive.outbox.event import projection_of
from redrive.outbox.index_job import COLLECTION, REBUILD, VERIFY, job_of
from redrive.outbox.index_watch import COLLECTION as INDEXES
from redrive.outbox.index_watch import watch_index

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection
    from redrive.outbox.settings import OutboxSettings

logger = logging.getLogger("redrive.outbox")
LOOK_EVERY_S = 1.0
WATCH_EVERY_S = 30.0


def duties_of(projections: Iterable[Projection], settings: OutboxSettings) -> list[Duty]:
    """Returns two duties for each projection: only workers that know a projection can reach its sink and its source."""
    known = list(projections)
    return [*(_duty(one, settings) for one in known), *(_watch(one, settings) for one in known)]


def _watch(projection: Projection, settings: OutboxSettings) -> Duty:
    async def run(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        try:
            await watch_index(store, projection, settings, stopping)
        except (ChangedMeanwhile, StoreUnavailable, StoreUnusable):
            pass  # it comes round again
        except Exception as error:  # of the sink: whoever writes to it says so
            logger.debug("%s: its index cannot be looked at: %r", projection.name, error)

    # Every application has the built-in one, and most never publish: it is watched once something was written to it.
    once_written = (INDEXES, projection.name) if projection.built_in else None
    return Duty(f"outbox:{projection.name}:index", WATCH_EVERY_S, run, while_record=once_written)


def _duty(projection: Projection, settings: OutboxSettings) -> Duty:
    async def run(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        await drive_all(store, projection, settings, worker, stopping)

    async def has_work(store: Store, worker: str) -> object:
        return await _moving(store, projection.name)

    # The state of an open job is the name of its projection.
    while_open = (COLLECTION, projection.name)
    return Duty(f"outbox:{projection.name}", LOOK_EVERY_S, run, has_work, while_record=while_open)


async def drive_all(
    store: Store, projection: Projection, settings: OutboxSettings, worker: str, stopping: Callable[[], bool]
) -> None:
    """Goes on with what is under way for a projection, for a while."""
    from redrive.outbox.rebuild import Rebuild
    from redrive.outbox.verify import Verify

    await asyncio.gather(*(one(store, projection, settings, worker, stopping).drive() for one in (Rebuild, Verify)))


async def _moving(store: Store, projection: str) -> tuple[tuple[str, int], ...]:
    """Returns what can move this moment, by id and version: who has tried, and finds the same again, has moved none."""
    found = list[tuple[str, int]]()
    for kind in (REBUILD, VERIFY):
        job = await job_of(store, kind, projection)
        record = None if job.operation is None else await store.record(OPERATIONS, job.operation)
        if record is not None and record.state != Status.PAUSED:
            found.append((record.id, record.version + job.version))
    return tuple(found)


def log_reclaimed(taken: Sequence[tuple[str, bool]]) -> None:
    """Writes one line for each projection. ``taken``: kinds of tasks, and whether each had passed its time limit."""
    counts = Counter((projection_of(kind), late) for kind, late in taken)
    for name in sorted({name for name, _ in counts if name is not None}):
        lease, late = counts[name, False], counts[name, True]
        extra = {
            "event": "outbox.reclaimed",
            "projection": name,
            "reclaimed": lease + late,
            "lease": lease,
            "max_processing": late,
        }
        text = "%s: took back %d events: %d of leases that ran out, %d that took longer than the maximum"
        logger.warning(text, name, lease + late, lease, late, extra=extra)
