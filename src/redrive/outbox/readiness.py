"""Whether this process is ready, as far as the outbox goes: sinks of the projections that it serves can be reached, and
what was published arrives there."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from redrive.kernel.diagnosis import Dependency
from redrive.outbox.event_counts import EventCounts, event_counts
from redrive.outbox.index_watch import index_states
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from datetime import datetime

    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection
    from redrive.settings import Settings

PATIENCE_S = 1.5  # less than that of whoever asks all features: a sink that hangs is told of, and it alone


async def dependencies(store: Store, settings: Settings) -> list[Dependency]:
    """Returns how the sinks are that this process writes to, from its start on, and whether events arrive there. One of
    several that is down is told of, and makes nobody unready: the others are served."""
    from redrive.outbox.projections import declared

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
