"""What somebody is told about projections without asking."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from redrive.kernel.alerts.brought import AlertRule
from redrive.kernel.alerts.rules import Unit
from redrive.kernel.diagnosis import Level
from redrive.outbox.event_counts import event_counts
from redrive.outbox.index_watch import index_states
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings


async def stuck(store: Store, settings: Settings) -> float | None:
    """Returns how many events are stuck in processing."""
    found = await event_counts(store, settings)
    return float(sum(one.stuck for one in found)) if found else None


async def oldest_age(store: Store, settings: Settings) -> float | None:
    """Returns the age of the oldest event that is not done."""
    found = await event_counts(store, settings)
    return max((one.oldest_age or 0.0 for one in found), default=None)


async def failed(store: Store, settings: Settings) -> float | None:
    """Returns how many events are failed."""
    found = await event_counts(store, settings)
    return float(sum(one.failed for one in found)) if found else None


async def lost(store: Store, settings: Settings) -> float | None:
    """Returns how many indexes were lost."""
    found = await index_states(store)
    return float(sum(one.lost_at is not None for one in found)) if found else None


async def drift(store: Store, settings: Settings) -> float | None:
    """Returns in how many documents indexes differ from their sources, when they were last compared."""
    found = await index_states(store)
    return float(sum(one.differs for one in found)) if found else None


def oldest_limit(settings: Settings) -> float:
    """Returns how old an event may become before somebody is told."""
    return settings.of(OutboxSettings).oldest_alert_seconds


def hold(usual: float) -> Callable[[Settings], float]:
    """Returns how long something has to be wrong before its alert fires: as it is set, else as usual."""

    def seconds(settings: Settings) -> float:
        given = settings.of(OutboxSettings).alert_hold_seconds
        return usual if given is None else given

    return seconds


ALERTS = (
    AlertRule(
        "outbox_stuck",
        "events that are stuck in processing",
        stuck,
        level=Level.CRITICAL,
        hold=hold(60),
        unit=Unit.TASKS,
        fix="redrive doctor names the projection; a worker for it takes them back: redrive outbox work",
    ),
    AlertRule(
        "outbox_behind",
        "age of the oldest event that is not in its sink",
        oldest_age,
        threshold=oldest_limit,
        hold=hold(60),
        unit=Unit.SECONDS,
        fix="redrive outbox names the projection; is its sink reachable, and a worker at it?",
    ),
    AlertRule(
        "outbox_failed",
        "events that failed, and are missing in their sink",
        failed,
        hold=hold(300),
        unit=Unit.TASKS,
        fix="redrive failed --queue outbox:NAME says why; mend that, then redrive outbox replay NAME",
    ),
    AlertRule(
        "outbox_index_lost",
        "indexes that were lost, and made anew without what was in them",
        lost,
        level=Level.CRITICAL,
        fix="redrive doctor names the projection: redrive outbox rebuild NAME",
    ),
    AlertRule(
        "outbox_drift",
        "documents in which an index differs from its source",
        drift,
        fix="redrive doctor names the projection: redrive outbox verify NAME --repair",
    ),
)
