"""What is wrong with projections, for doctor: events that are stuck, wait for too long, or failed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from redrive.kernel.diagnosis import Finding, Level
from redrive.outbox.event import queue_of
from redrive.outbox.event_counts import event_counts
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong: events that are stuck, that wait for too long, or that failed."""
    found: list[Finding] = []
    oldest = settings.of(OutboxSettings).oldest_alert_seconds
    for one in await event_counts(store, settings):
        name = one.projection
        told = partial(Finding, about=("queue", queue_of(name)), page=f"/outbox/{name}")
        work = f"redrive outbox work {name}"
        if one.stuck:
            text = f"projection {name}: {one.stuck} stuck in processing; whoever had them is gone or hangs"
            found.append(told(Level.CRITICAL, "outbox_stuck", text, work))
        if one.oldest_age is not None and one.oldest_age > oldest:
            text = f"projection {name} is behind: {one.lag} events, the oldest for {one.oldest_age:.0f} s"
            found.append(told(Level.WARNING, "outbox_behind", text, work))
        if one.failed:
            text = f"projection {name}: {one.failed} failed, and missing in its sink"
            why = f"redrive failed --queue {queue_of(name)} says why"
            found.append(
                told(Level.WARNING, "outbox_failed", text, f"{why}; mend that, then redrive outbox replay {name}")
            )
    return found
