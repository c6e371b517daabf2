"""What workers do for projections besides projecting: rebuilds and comparisons, each by one worker at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from redrive.errors import ChangedMeanwhile, StoreUnavailable, StoreUnusable
from redrive.kernel.duty import Duty
from redrive.outbox.index_job import COLLECTION
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
        from redrive.outbox.open_operations import drive_all

        await drive_all(store, projection, settings, worker, stopping)

    async def has_work(store: Store, worker: str) -> object:
        from redrive.outbox.open_operations import moving

        return await moving(store, projection.name)

    # The state of an open job is the name of its projection.
    while_open = (COLLECTION, projection.name)
    return Duty(f"outbox:{projection.name}", LOOK_EVERY_S, run, has_work, while_record=while_open)
