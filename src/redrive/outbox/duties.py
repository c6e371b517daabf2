"""What workers do for projections besides projecting: rebuilds and comparisons, each by one worker at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from redrive.kernel.duty import Duty
from redrive.outbox.index_job import COLLECTION

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection
    from redrive.outbox.settings import OutboxSettings

LOOK_EVERY_S = 1.0


def duties_of(projections: Iterable[Projection], settings: OutboxSettings) -> list[Duty]:
    """Returns a duty for each projection: only workers that know a projection can reach its sink and its source."""
    return [_duty(projection, settings) for projection in projections]


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
