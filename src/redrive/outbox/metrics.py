"""What is measured of the outbox, under the names that its earlier users know."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redrive.observe.feature_metrics import FeatureMetrics
from redrive.observe.metrics import Metric, Scope, Type
from redrive.observe.samples import Samples, put
from redrive.outbox.application import arrivals, declared, note_arrival
from redrive.outbox.event import projection_of
from redrive.outbox.health import EventCounts, event_counts
from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings

_BY = ("projection",)
LAG = Metric("outbox_lag_events", Type.GAUGE, "Events that are not done: pending and processing.", _BY, Scope.FLEET)
OLDEST = Metric("outbox_oldest_age_seconds", Type.GAUGE, "Age of the oldest event that is not done.", _BY, Scope.FLEET)
INFLIGHT = Metric(
    "outbox_inflight_events", Type.GAUGE, "Events that are processed under a live lease.", _BY, Scope.FLEET
)
STUCK = Metric(
    "outbox_stuck_processing_events",
    Type.GAUGE,
    "Events in processing whose lease is over, or that take longer than the maximum.",
    _BY,
    Scope.FLEET,
)
PROCESSED = Metric("outbox_processed_total", Type.COUNTER, "Events that this worker has projected.", _BY)
FAILED = Metric("outbox_failed_total", Type.COUNTER, "Attempts of events that failed.", _BY)
RETRIES = Metric("outbox_retry_scheduled_total", Type.COUNTER, "Events that were given another attempt.", _BY)
TERMINAL = Metric(
    "outbox_terminal_failed_total", Type.COUNTER, "Events that became failed, by reason.", ("projection", "reason")
)
LAST = Metric(
    "outbox_last_projected_timestamp_seconds", Type.GAUGE, "When events last arrived in the sink, by this worker.", _BY
)
# By how an attempt ended: what that counts as.
_COUNTS = {
    "completed": (PROCESSED,),
    "retried": (FAILED, RETRIES),
    "expired": (FAILED, RETRIES),
    "failed": (FAILED,),
}


def process(worker: Samples) -> Samples:
    """Returns what follows from what the worker has counted anyway."""
    found: Samples = {}
    for (_, kind, outcome, reason), n in worker.get("redrive_attempts_total", {}).items():
        projection = projection_of(kind)
        if projection is None:
            continue
        for metric in (PROCESSED, FAILED, RETRIES):  # also at zero: nobody sees a counter grow that was not there
            put(found, metric.name, 0.0, projection)
        for metric in _COUNTS.get(outcome, ()):
            put(found, metric.name, n, projection)
        if outcome == "failed":
            put(found, TERMINAL.name, n, projection, reason)
    for name, at in arrivals().items():
        put(found, LAST.name, at.timestamp(), name)
    return found


def hear(worker: Samples) -> None:
    """Notes when events arrived, by a worker process, in the supervisor that is asked for it."""
    for (name,), at in worker.get(LAST.name, {}).items():
        if isinstance(at, float):
            note_arrival(name, datetime.fromtimestamp(at, UTC))


async def fleet(store: Store, settings: Settings) -> Samples:
    """Returns what the store says, the same whoever is asked."""
    found: Samples = {}
    known = {one.projection: one for one in await event_counts(store, settings)}
    for name in {one.name for one in declared(settings.of(OutboxSettings))} - known.keys():
        known[name] = EventCounts(name)  # from the start, so that nobody takes a gap for zero
    for one in known.values():
        put(found, LAG.name, float(one.lag), one.projection)
        put(found, OLDEST.name, one.oldest_age or 0.0, one.projection)
        put(found, INFLIGHT.name, float(one.inflight), one.projection)
        put(found, STUCK.name, float(one.stuck), one.projection)
    return found


metrics = FeatureMetrics(
    [LAG, OLDEST, INFLIGHT, STUCK, PROCESSED, FAILED, RETRIES, TERMINAL, LAST], fleet=fleet, process=process, hear=hear
)
