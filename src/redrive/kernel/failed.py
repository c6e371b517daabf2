"""Tasks that are failed now: which of them, and what they have in common."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True, frozen=True)
class Failures:
    """Which of the tasks that are failed now; None means any."""

    kind: str | None = None
    queue: str | None = None
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    error_code: str | None = None
    error_reason: str | None = None
    failure_type: str | None = None
    dead_reason: str | None = None
    fingerprint: str | None = None
    batch: str | None = None  # the bulk operation that retried them last
    ids: tuple[UUID, ...] | None = None


@dataclass(slots=True, frozen=True)
class FailedCount:
    """Tasks that are failed now and have all of this in common."""

    kind: str
    queue: str
    group: str | None
    error_code: str
    error_reason: str
    failure_type: str
    dead_reason: str
    fingerprint: str
    n: int
