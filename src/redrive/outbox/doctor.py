"""What is wrong with projections, for doctor: events that are stuck, wait for too long, or failed, indexes that were
lost or differ from their source, sinks that cannot be reached."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from redrive.kernel.diagnosis import Finding, Level
from redrive.outbox.event import queue_of
from redrive.outbox.event_counts import event_counts
from redrive.outbox.index_watch import index_states
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sink import PAIRS_MISSING, PairIndex

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.outbox.projection import Projection
    from redrive.settings import Settings


SINK_PATIENCE_S = 2.0


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
    for state in await index_states(store):
        if state.problem is not None:
            level = Level.WARNING if state.lost_at is None else Level.CRITICAL
            name, (text, _, command) = state.projection, state.problem.partition(": ")
            code = "outbox_drift" if state.lost_at is None else "outbox_index_lost"
            about = ("queue", queue_of(name))
            found.append(
                Finding(level, code, f"projection {name}: {text}", command, about=about, page=f"/outbox/{name}")
            )
    return [*found, *await _sinks(settings)]


async def _sinks(settings: Settings) -> list[Finding]:
    """Returns the sinks that cannot be reached from here, and those whose indexes an earlier version made, of the
    projections that this application declares."""
    from redrive.outbox.projections import declared

    known = declared(settings.of(OutboxSettings))
    reached = await asyncio.gather(*(one.watch.look(SINK_PATIENCE_S) for one in known))
    older = [one for one, each in zip(known, reached, strict=True) if each.ok and not await _finds_pairs(one)]
    return [
        Finding(
            Level.NOTE,
            "outbox_index_old",
            f"projection {one.name}: {PAIRS_MISSING}",
            f"redrive outbox rebuild {one.name}",
            about=("queue", queue_of(one.name)),
            page=f"/outbox/{one.name}",
        )
        for one in older
    ] + [
        Finding(
            Level.WARNING,
            "outbox_sink_down",
            f"the sink of projection {one.name} cannot be reached from here: {each.detail or 'no answer'}",
            f"redrive outbox show {one.name}",
            about=("queue", queue_of(one.name)),
            page=f"/outbox/{one.name}",
        )
        for one, each in zip(known, reached, strict=True)
        if not each.ok
    ]


async def _finds_pairs(projection: Projection) -> bool:
    """Returns whether what a full-text index holds is found in Chinese, Japanese and Korean; also where nobody can
    say."""
    sink = projection.sink_to_look_at()
    if not isinstance(sink, PairIndex):
        return True
    try:
        async with asyncio.timeout(SINK_PATIENCE_S):
            return await sink.finds_pairs()
    except Exception:  # whatever its client raises: the next look at it says what is wrong with it
        return True
