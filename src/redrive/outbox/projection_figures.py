"""How projections stand, for people: the same figures in the console, in the API and on the command line.

What is asked for is counted by the store as events move: however many there are, a projection takes a few statements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redrive.errors import NotFound
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.ports.store import Overview
from redrive.ops.circuits import told
from redrive.ops.operator.session import Session
from redrive.ops.workers import live_workers
from redrive.outbox.event import kind_of, queue_of
from redrive.outbox.event_counts import EventCounts, event_counts
from redrive.outbox.index_watch import IndexState, index_state, index_states
from redrive.outbox.projection import Projection
from redrive.outbox.projections import projections_of
from redrive.outbox.settings import OutboxSettings
from redrive.outbox.sink import Rebuildable, Searchable
from redrive.outbox.sinks import sink_words

MOST_REASONS = 50
EVENTS_OF_A_STATE = 5
SETTINGS_SHOWN = (
    "lease_seconds",
    "reclaim_interval_seconds",
    "max_processing_seconds",
    "max_attempts",
    "base_backoff_seconds",
    "max_backoff_seconds",
    "batch_bytes",
    "batch_seconds",
    "keep_seconds",
    "tombstone_days",
    "oldest_alert_seconds",
    "rebuild_lost",
    "verify_hours",
)
Row = dict[str, Any]


async def overview(session: Session) -> list[Row]:
    """Returns all projections: those of the application, and others that events were published to."""
    known = projections_of(session.registry)
    found = {one.projection: one for one in await event_counts(session.store, session.settings)}
    seen = await session.store.overview()
    return [_row(name, known.get(name), found.get(name), seen) for name in sorted({*known, *found})]


async def used(session: Session) -> bool:
    """Returns whether anybody uses the outbox: a projection was declared, or something published."""
    declared = any(not one.built_in for one in projections_of(session.registry).values())
    return declared or bool(await event_counts(session.store, session.settings))


async def troubled(session: Session) -> int:
    """Returns how many projections need somebody: events of them failed, are stuck, or wait for too long."""
    oldest = session.settings.of(OutboxSettings).oldest_alert_seconds
    found = await event_counts(session.store, session.settings)
    wrong = {one.projection for one in found if one.failed or one.stuck or (one.oldest_age or 0.0) > oldest}
    return len(wrong | {one.projection for one in await index_states(session.store) if one.problem is not None})


async def show(session: Session, name: str, *, whole: bool) -> Row:
    """Returns everything about one projection. ``whole``: with what is for those who may act, which is what errors say
    and the settings."""
    store, known = session.store, projections_of(session.registry).get(name)
    found = next((one for one in await event_counts(store, session.settings) if one.projection == name), None)
    if known is None and found is None:
        raise NotFound(f"there is no projection {name!r}", hint="redrive outbox lists them")
    seen = await store.overview()
    queue = queue_of(name)
    return {
        **_row(name, known, found, seen),
        **await _sink(known),
        **_index(await index_state(store, name)),
        "circuit": _circuit(seen, kind_of(name)),
        "failures": await store.sql.feature_rows("outbox", "failed_by_reason", queue, MOST_REASONS),
        "retried": await store.sql.feature_rows("outbox", "retried_by_reason", queue, MOST_REASONS),
        "events": [
            _event(row, whole=whole)
            for row in await store.sql.feature_rows("outbox", "longest_events", queue, EVENTS_OF_A_STATE)
        ],
        "settings": _settings(session, known) if whole else None,
    }


def _row(name: str, projection: Projection | None, found: EventCounts | None, seen: Overview) -> Row:
    one, queue = found or EventCounts(name), queue_of(name)
    pause = seen.pause_of("queue", queue)
    return {
        "projection": name,
        "queue": queue,
        "sink": None if projection is None else projection.shown,
        "pending": one.pending,
        "processing": one.processing,
        "done": one.done,
        "failed": one.failed,
        "lag": one.lag,
        "inflight": one.inflight,
        "retries": one.retries,
        "stuck": one.stuck,
        "oldest_age": None if one.oldest_age is None else round(one.oldest_age, 3),
        "workers": sum(queue in row.queues for row in live_workers(seen)),
        "paused": None if pause is None else {"by": pause.actor, "reason": pause.reason, "at": pause.at},
    }


async def _sink(projection: Projection | None) -> Row:
    if projection is None:
        nothing = {"searchable": False, "rebuildable": False}
        return {"sink_kind": None, "sink_state": "unknown", "sink_detail": None, **nothing}
    reached = await projection.watch.look()
    can_search, can_rebuild = _abilities(projection)
    return {
        "sink_kind": sink_words(projection.shown),
        "sink_state": reached.word,
        "sink_detail": reached.detail,
        "searchable": can_search,
        "rebuildable": can_rebuild,
    }


def _index(state: IndexState) -> Row:
    """Returns whether its index is the one that was written to, and has what the source has."""
    return {
        "index_problem": state.problem,
        "index_lost_at": to_datetime(state.lost_at),
        "verified_at": to_datetime(state.verified_at),
        "differs": state.differs,
    }


def _abilities(projection: Projection) -> tuple[bool, bool]:
    try:
        sink = projection.sink_to_look_at()
    except Exception:  # it cannot be made here, as the watch has told
        return False, False
    return isinstance(sink, Searchable), isinstance(sink, Rebuildable)


def _circuit(seen: Overview, kind: str) -> Row | None:
    row = next((one for one in seen.circuits if kind in one.kinds), None)
    if row is None:
        return None
    return {"name": row.name, "state": row.state(seen.now).value, "open": row.open, "told": told(row, seen.now)}


def _event(row: Mapping[str, Any], *, whole: bool) -> Row:
    times = {name: to_datetime(row[name]) for name in ("created_at", "failed_at", "next_retry_at", "lease_until")}
    return {**row, **times, "id": str(row["id"]), "error": row["error"] if whole else None}


def _settings(session: Session, projection: Projection | None) -> Row:
    """Returns the settings in force, as this process has them; batch and circuit are the projection's own."""
    own = session.settings.of(OutboxSettings)
    batch = own.batch if projection is None else projection.batch
    circuit = projection is not None and projection.circuit is not None
    return {"batch": batch, "circuit": circuit, **{name: getattr(own, name) for name in SETTINGS_SHOWN}}
