"""Counts the events of each projection: those that wait, are under way, failed, are done, or are stuck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redrive.outbox.settings import OutboxSettings

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store
    from redrive.settings import Settings


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
