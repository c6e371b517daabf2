"""How projections stand: counts of their events, and what is wrong, for doctor, for alerts, and for whoever asks
whether this process is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redrive.kernel.alerts.own import AlertRule
from redrive.kernel.alerts.rules import Unit
from redrive.kernel.diagnosis import Dependency, Finding, Level
from redrive.outbox.event import queue_of
from redrive.outbox.index_watch import index_states
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection
    from redrive.settings import Settings

SINK_PATIENCE_S = 2.0
PATIENCE_S = 1.5  # less than that of whoever asks all features: a sink that hangs is told of, and it alone


@dataclass(slots=True, frozen=True)
class EventCounts:
    """The events of a projection, in the words of the outbox. ``stuck``: processing, and its lease is over or it takes
    longer than ``OUTBOX_MAX_PROCESSING_SECONDS``. ``retries``: of the pending ones, those that
    wait for another attempt. ``oldest_age``: seconds since the oldest that is not done was published."""

    projection: str
    pending: int = 0
    processing: int = 0
    failed: int = 0
    done: int = 0
    inflight: int = 0
    stuck: int = 0
    retries: int = 0
    oldest_age: float | None = None

    @property
    def lag(self) -> int:
        return self.pending + self.processing


async def event_counts(store: Store, settings: Settings) -> list[EventCounts]:
    """Returns the counts of each projection that ever had an event, by one statement."""
    longest = settings.of(OutboxSettings).max_processing_seconds
    return [EventCounts(**row) for row in await store.sql.feature_rows("outbox", "event_counts", longest)]


def _events(figure: str) -> Callable[[Store, Settings], Awaitable[float | None]]:
    """Returns what looks how many events are so, of all projections."""

    async def look(store: Store, settings: Settings) -> float | None:
        found = await event_counts(store, settings)
        return float(sum(getattr(one, figure) for one in found)) if found else None

    return look


stuck, failed = _events("stuck"), _events("failed")


async def oldest_age(store: Store, settings: Settings) -> float | None:
    """Returns the age of the oldest event that is not done."""
    found = await event_counts(store, settings)
    return max((one.oldest_age or 0.0 for one in found), default=None)


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


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns what is wrong: events that are stuck, that wait for too long, or that failed; indexes that were lost or
    differ; sinks that cannot be reached from here."""
    from redrive.outbox.application import declared

    found: list[Finding] = []

    def find(name: str, level: Level, code: str, text: str, fix: str) -> None:
        found.append(Finding(level, code, text, fix, about=("queue", queue_of(name)), page=f"/outbox/{name}"))

    oldest = settings.of(OutboxSettings).oldest_alert_seconds
    for one in await event_counts(store, settings):
        name, work = one.projection, f"redrive outbox work {one.projection}"
        if one.stuck:
            text = f"projection {name}: {one.stuck} stuck in processing; whoever had them is gone or hangs"
            find(name, Level.CRITICAL, "outbox_stuck", text, work)
        if one.oldest_age is not None and one.oldest_age > oldest:
            text = f"projection {name} is behind: {one.lag} events, the oldest for {one.oldest_age:.0f} s"
            find(name, Level.WARNING, "outbox_behind", text, work)
        if one.failed:
            text = f"projection {name}: {one.failed} failed, and missing in its sink"
            fix = f"redrive failed --queue {queue_of(name)} says why; mend that, then redrive outbox replay {name}"
            find(name, Level.WARNING, "outbox_failed", text, fix)
    for state in await index_states(store):
        if state.problem is not None:
            name, (text, _, command) = state.projection, state.problem.partition(": ")
            level = Level.WARNING if state.lost_at is None else Level.CRITICAL
            code = "outbox_drift" if state.lost_at is None else "outbox_index_lost"
            find(name, level, code, f"projection {name}: {text}", command)
    known = declared(settings.of(OutboxSettings))
    reached = await asyncio.gather(*(one.watch.look(SINK_PATIENCE_S) for one in known))
    for projection, answer in zip(known, reached, strict=True):
        name = projection.name
        if not answer.ok:
            text = f"the sink of projection {name} cannot be reached from here: {answer.detail or 'no answer'}"
            find(name, Level.WARNING, "outbox_sink_down", text, f"redrive outbox show {name}")
    return found


async def dependencies(store: Store, settings: Settings) -> list[Dependency]:
    """Returns how the sinks are that this process writes to, from its start on, and whether events arrive there. One of
    several that is down is told of, and makes nobody unready: the others are served."""
    from redrive.outbox.application import declared

    own = settings.of(OutboxSettings)
    served = [one for one in declared(own) if one.served]
    if not served:
        return []
    counts = {one.projection: one for one in await event_counts(store, settings)}
    states = {one.projection: one for one in await index_states(store)}
    # The built-in one is served by every worker: most applications never publish, and depend on no sink.
    served = [one for one in served if not one.built_in or one.alone or one.name in counts or one.name in states]
    if not served:
        return []
    now = await store.now()
    sinks = await asyncio.gather(*(_sink(one) for one in served))
    fresh = [_freshness(one, counts.get(one.name), own.oldest_alert_seconds, now) for one in served]
    if any(not one.ok for one in fresh):  # an operator may want it so
        seen = await store.overview()
        paused = {f"projection {one.name}" for one in served if seen.pause_of("queue", one.queue) is not None}
        fresh = [replace(one, ok=one.ok or one.name in paused) for one in fresh]
    lost = [
        Dependency(f"index of {one.name}", False, state.problem)
        for one in served
        if (state := states.get(one.name)) is not None and state.lost_at is not None
    ]
    well = any(sink.ok and projection.ok for sink, projection in zip(sinks, fresh, strict=True))
    return [*(replace(one, blocks=not well) for one in (*sinks, *fresh)), *(replace(one, blocks=False) for one in lost)]


async def _sink(projection: Projection) -> Dependency:
    found = await projection.watch.look(PATIENCE_S)
    name = f"sink of {projection.name}"
    if found.ok is None:
        return Dependency(name, False, f"no answer within {PATIENCE_S:g} s", projection.watch.reached_at)
    return Dependency(name, found.ok, found.detail, projection.watch.reached_at)


def _freshness(projection: Projection, counts: EventCounts | None, limit: float, now: datetime) -> Dependency:
    """Returns whether events arrive: none waits for too long, or some have arrived lately."""
    name, last = f"projection {projection.name}", projection.projected_at
    oldest = 0.0 if counts is None else counts.oldest_age or 0.0
    since = oldest if last is None else (now - last).total_seconds()
    if min(oldest, since) <= limit:
        return Dependency(name, last_success=last)
    return Dependency(
        name, False, f"the oldest event waits for {oldest:.0f} s, none has arrived for {since:.0f} s", last
    )
