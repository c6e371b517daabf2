"""What one worker of the fleet does for batches every so often."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.batches.names import PLACES, WAITED
from redrive.batches.settings import BatchSettings
from redrive.kernel.duty import Duty

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

LOOK_EVERY_S = 60.0
CALLED_EVERY_S = 3.0
PLACES_EVERY_S = 2.0
MOVING_EVERY_S = 300.0


def duties(settings: Settings) -> list[Duty]:
    own = settings.of(BatchSettings)
    hours = own.open_hours

    async def look(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        from redrive.batches.batch_builder import cancel_forgotten, mark_agreed

        await cancel_forgotten(store, hours, stopping)
        await mark_agreed(store)

    async def ends(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        from redrive.batches.remote.upkeep import bring_steps, cancel_unwanted, end_overdue

        await bring_steps(store, stopping)
        await cancel_unwanted(store, stopping)
        await end_overdue(store, own.max_item_seconds, stopping, own.max_start_seconds)

    async def moving(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        from redrive.batches.remote.upkeep import tell_ledger

        await tell_ledger(store, settings, stopping)

    async def called(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        from redrive.batches.remote.callbacks import make_called_due

        await make_called_due(store, stopping)

    async def any_called(store: Store, worker: str) -> object:
        from redrive.batches.remote.callbacks import any_called

        return await any_called(store)

    async def places(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        from redrive.batches.remote.in_flight import fill_places

        await fill_places(store, own.max_in_flight, stopping)

    found = [
        Duty("batches:look", LOOK_EVERY_S, look, by_time=True),
        Duty("batches:overdue", LOOK_EVERY_S, ends, by_time=True),
        Duty("batches:moving", MOVING_EVERY_S, moving),
        Duty("batches:places", PLACES_EVERY_S, places, while_record=(PLACES, WAITED), by_time=True),
    ]
    if settings.callback_base_url is not None:
        found.append(Duty("batches:called", CALLED_EVERY_S, called, any_called))
    return found
