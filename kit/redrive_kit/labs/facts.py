"""Facts of one moment: the three usual questions to the view ``search_outbox_events``, and a worker's metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from redrive.kernel.ports.store import Store
from redrive_kit.labs.workers import Metrics

FEATURE = "labs"  # whose statements they are
MOST = 10_000
GAUGES = {"lag": "outbox_lag_events", "stuck": "outbox_stuck_processing_events"}


@dataclass(slots=True, frozen=True)
class Waiting:
    """A pending event. ``retry_in``: seconds until its next attempt; None where it waits for none."""

    entity_id: str
    attempts: int
    next_retry_at: str | None
    retry_in: float | None
    reason: str | None
    age: float


@dataclass(slots=True, frozen=True)
class Facts:
    """``pending``, ``processing`` and ``failed`` by status, ``oldest``: the oldest that is pending."""

    when: str  # "before", "during the outage"
    at: datetime
    counts: Mapping[str, int]
    done: int
    stuck: int
    waiting: list[Waiting]
    metrics: Metrics = field(default_factory=dict)

    @property
    def pending(self) -> int:
        return self.counts.get("pending", 0)

    @property
    def processing(self) -> int:
        return self.counts.get("processing", 0)

    @property
    def failed(self) -> int:
        return self.counts.get("failed", 0)

    @property
    def lag(self) -> int:
        return self.pending + self.processing

    @property
    def oldest(self) -> Waiting | None:
        return self.waiting[0] if self.waiting else None

    @property
    def most_attempts(self) -> int:
        return max((one.attempts for one in self.waiting), default=0)

    def is_measured(self, names: Collection[str] = tuple(GAUGES)) -> bool:
        """Returns whether the worker's gauges say what the view says: they are some seconds old. True without one."""
        return not self.metrics or all(self.metrics.get(GAUGES[name], 0.0) == getattr(self, name) for name in names)

    def words(self) -> str:
        """Returns them in one line."""
        text = f"pending {self.pending}, processing {self.processing}, done {self.done}, failed {self.failed}"
        text += f"; stuck {self.stuck}"
        if self.oldest is not None:
            text += f"; oldest pending {oldest_words(self.oldest)}"
        return text

    def measured(self) -> str:
        """Returns the metrics in one line."""
        return " ".join(f"{name}={value:g}" for name, value in sorted(self.metrics.items())) or "no metrics"


def oldest_words(one: Waiting) -> str:
    """Returns what is worth knowing of a pending event."""
    retry = f", next retry in {one.retry_in:.1f} s" if one.next_retry_at and one.retry_in is not None else ""
    reason = f", {one.reason}" if one.reason else ""
    return f"{one.entity_id} for {one.age:.1f} s, {one.attempts} attempts{retry}{reason}"


async def look(store: Store, entity_type: str, max_processing: float, when: str, metrics: Metrics) -> Facts:
    """Asks the three questions about the events of an entity type."""
    rows = await store.sql.feature_rows(FEATURE, "counts", entity_type)
    [done] = await store.sql.feature_rows(FEATURE, "done", entity_type)
    [stuck] = await store.sql.feature_rows(FEATURE, "stuck", entity_type, max_processing)
    waiting = await store.sql.feature_rows(FEATURE, "waiting", entity_type, MOST)
    return Facts(
        when,
        datetime.now(UTC),
        {row["status"]: row["n"] for row in rows},
        done["n"],
        stuck["n"],
        [_waiting(row) for row in waiting],
        metrics,
    )


async def events(store: Store, entity_type: str, status: str) -> list[dict[str, Any]]:
    """Returns events of a status with all columns of the view."""
    return await store.sql.feature_rows(FEATURE, "events", entity_type, status, MOST)


def _waiting(row: Mapping[str, Any]) -> Waiting:
    at = row["next_retry_at"]
    retry_in = None if at is None else float(row["retry_in"])
    return Waiting(
        row["entity_id"], row["attempts"], None if at is None else str(at), retry_in, row["error_reason"], row["age"]
    )
