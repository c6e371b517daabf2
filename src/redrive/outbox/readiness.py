"""Whether this process is ready, as far as the outbox goes: the sinks that it writes to can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.kernel.diagnosis import Dependency
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings


async def dependencies(store: Store, settings: Settings) -> list[Dependency]:
    """Returns whether the sinks can be reached that this process writes to."""
    from redrive.outbox.projections import sinks_in_use

    found = []
    for projection, sink in sinks_in_use(settings.of(OutboxSettings)):
        try:
            await sink.check()
            found.append(Dependency(f"sink of {projection.name}"))
        except Exception as error:  # whatever it is: nothing can be written there now
            found.append(Dependency(f"sink of {projection.name}", False, f"not reachable ({type(error).__name__})"))
    return found
