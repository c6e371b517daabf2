"""What is wrong with projections: told by doctor, by alerts, and by readiness."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from redrive.kernel.alerts.brought import AlertRule
from redrive.kernel.alerts.rules import Unit
from redrive.kernel.diagnosis import Dependency, Finding, Level
from redrive.outbox.event import queue_of
from redrive.outbox.numbers import numbers
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong: events that are stuck, that wait for too long, or that failed."""
    found: list[Finding] = []
    oldest = settings.of(OutboxSettings).oldest_alert_seconds
    for one in await numbers(store, settings):
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


async def stuck(store: Store, settings: Settings) -> float | None:
    """Returns how many events are stuck in processing."""
    found = await numbers(store, settings)
    return float(sum(one.stuck for one in found)) if found else None


async def oldest_age(store: Store, settings: Settings) -> float | None:
    """Returns the age of the oldest event that is not done."""
    found = await numbers(store, settings)
    return max((one.oldest_age or 0.0 for one in found), default=None)


async def failed(store: Store, settings: Settings) -> float | None:
    """Returns how many events are failed."""
    found = await numbers(store, settings)
    return float(sum(one.failed for one in found)) if found else None


def oldest_limit(settings: Settings) -> float:
    """Returns how old an event may become before somebody is told."""
    return settings.of(OutboxSettings).oldest_alert_seconds


def hold(usual: float) -> Callable[[Settings], float]:
    """Returns how long something has to be wrong before its alert fires: as it is set, else as usual."""

    def seconds(settings: Settings) -> float:
        given = settings.of(OutboxSettings).alert_hold_seconds
        return usual if given is None else given

    return seconds


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
)
