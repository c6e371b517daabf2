"""What one worker of the fleet does for batches every minute."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.batches.settings import BatchSettings
from redrive.kernel.duty import Duty

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

LOOK_EVERY_S = 60.0


def duties(settings: Settings) -> list[Duty]:
    hours = settings.of(BatchSettings).open_hours

    async def look(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        from redrive.batches.forgotten import cancel_forgotten, mark_agreed

        await cancel_forgotten(store, hours, stopping)
        await mark_agreed(store)

    return [Duty("batches:look", LOOK_EVERY_S, look)]
