"""``/api/outbox``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from redrive.api.encode import json_answer
from redrive.api.models import OperationOut
from redrive.feature import Operator
from redrive.feature.api import PROBLEMS, In, Out, TheOperator
from redrive.ops import views
from redrive.outbox.replay import DEFAULT_LIMIT
from redrive.outbox.service import MOST_HITS, OutboxService

router = APIRouter(prefix="/api/outbox", tags=["outbox"], responses=PROBLEMS)


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
    reason: str | None = None
    actor: str | None = None


class ReplayedOut(Out):
    """``matched`` events were meant; of a dry run they are what would be replayed."""

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

    allow_refused: int = 0
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


@router.get("", response_model=ProjectionsOut)
async def list_projections(operator: TheOperator) -> dict[str, Any]:
    """Projections, and how far behind their sinks are."""
    return {"items": await operator.of(OutboxService).overview()}


@router.get("/{projection}", response_model=OneProjectionOut)
async def show_projection(projection: str, operator: TheOperator) -> dict[str, Any]:
    """A projection: its figures, failures by reason, its sink, and the events that wait or fail longest."""
    return await operator.of(OutboxService).show(projection)


@router.get("/{projection}/search", response_model=HitsOut)
async def search_projection(
    projection: str,
    operator: TheOperator,
    text: Annotated[str, Query(min_length=1, max_length=1000)],
    limit: Annotated[int, Query(ge=1, le=MOST_HITS)] = 10,
) -> dict[str, Any]:
    """Search the documents of a projection, where its sink can."""
    return {"items": await operator.of(OutboxService).search(projection, text, limit)}


@router.post("/{projection}/replay")
async def replay_projection(projection: str, body: ReplayIn, operator: TheOperator) -> ReplayedOut:
    """Try failed events again, those that failed first, up to ``limit``. What needs a second operator is refused with
    409: begin it as an operation."""
    own = operator.named(body.actor).of(OutboxService)
    plan = await own.plan_replay([projection], body.limit)
    done = plan.told(dry_run=True) if body.dry_run else await own.replay(plan, body.reason)
    return ReplayedOut.model_validate(done)


@router.post("/{projection}/rebuild", response_model=BegunOut, status_code=202)
async def rebuild_projection(projection: str, body: RebuildIn, operator: TheOperator) -> Response:
    """Begin to rebuild a projection from its source into a new index, which becomes the live one. Workers carry it out;
    ``/api/operations/{id}`` shows, pauses, resumes and cancels it."""
    acting = operator.named(body.actor)
    begun = await acting.of(OutboxService).rebuild(
        projection, reason=body.reason, allow_refused=body.allow_refused, allow_empty=body.allow_empty
    )
    return await _begun(operator, begun.id)


@router.post("/{projection}/verify", response_model=BegunOut, status_code=202)
async def verify_projection(projection: str, body: VerifyIn, operator: TheOperator) -> Response:
    """Begin to compare the index of a projection with its source. Workers carry it out; ``work.result`` of
    ``/api/operations/{id}`` has what differs."""
    begun = (
        await operator.named(body.actor).of(OutboxService).verify(projection, reason=body.reason, repair=body.repair)
    )
    return await _begun(operator, begun.id)


async def _begun(operator: Operator, operation_id: str) -> Response:
    return await json_answer(202, operation=views.operation(await operator.operations.record(operation_id)))
