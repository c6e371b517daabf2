"""What goes over the wire of ``/api/outbox``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from redrive.api.models import OperationOut
from redrive.feature.api import In, Out
from redrive.outbox.operations import MOST_ALLOWED
from redrive.outbox.replay import DEFAULT_LIMIT


class PauseOut(Out):
    by: str
    reason: str | None
    at: datetime


class ProjectionOut(Out):
    projection: str
    queue: str
    sink: str | None
    pending: int
    processing: int
    done: int
    failed: int
    lag: int
    inflight: int
    retries: int
    stuck: int
    oldest_age: float | None
    workers: int
    paused: PauseOut | None


class ReasonOut(Out):
    reason: str
    events: int


class CircuitOut(Out):
    name: str
    state: str
    open: bool
    told: str


class EventOut(Out):
    id: str
    status: str
    entity: str | None
    op: str | None
    version: int | None
    attempts: int
    max_attempts: int
    replay_count: int
    created_at: datetime
    failed_at: datetime | None
    next_retry_at: datetime | None
    lease_until: datetime | None
    error_reason: str | None
    error: str | None


class OneProjectionOut(ProjectionOut):
    """``events``: some of each state, those that wait or failed first; ``retried``: why events wait for another
    attempt. Errors and settings are for those who may act."""

    sink_kind: str | None
    sink_state: str
    sink_detail: str | None
    index_problem: str | None
    index_lost_at: datetime | None
    verified_at: datetime | None
    differs: int
    searchable: bool
    rebuildable: bool
    circuit: CircuitOut | None
    failures: list[ReasonOut]
    retried: list[ReasonOut]
    events: list[EventOut]
    settings: dict[str, Any] | None


class ProjectionsOut(Out):
    items: list[ProjectionOut]


class ReplayIn(In):
    limit: int = DEFAULT_LIMIT
    dry_run: bool = False
    forgotten: Annotated[bool, Field(description="Also what was forgotten or purged.")] = False
    reason: str | None = None
    actor: str | None = None


class ReplayedOut(Out):
    """``matched`` events were meant; of a dry run they are what would be replayed. ``bulkIds`` are operations:
    ``GET /api/operations/{id}`` says what became of the events."""

    matched: int
    cancelled: int
    retried: int
    skipped: int
    dry_run: bool
    needs_approval: str | None
    bulk_ids: list[str]


class RebuildIn(In):
    """``allowRefused``: so many documents may be refused by the new index. ``allowEmpty``: an empty source is no
    mistake."""

    allow_refused: Annotated[int, Field(ge=0, le=MOST_ALLOWED)] = 0
    allow_empty: bool = False
    reason: str | None = None
    actor: str | None = None


class VerifyIn(In):
    """``repair``: what is missing or stale is published anew, what is extra is deleted."""

    repair: bool = False
    reason: str | None = None
    actor: str | None = None


class BegunOut(Out):
    operation: OperationOut


class HitOut(Out):
    key: str
    score: float
    document: Any


class HitsOut(Out):
    items: list[HitOut]
    warnings: list[str] = Field(description="What the search leaves out, and the command that brings it.")
