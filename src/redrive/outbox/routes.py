"""``/api/outbox``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from redrive.api.encode import json_answer
from redrive.feature import Operator
from redrive.feature.api import PROBLEMS, TheOperator
from redrive.ops import views
from redrive.outbox.api_models import (
    BegunOut,
    HitsOut,
    OneProjectionOut,
    ProjectionsOut,
    RebuildIn,
    ReplayedOut,
    ReplayIn,
    VerifyIn,
)
from redrive.outbox.service import MOST_HITS, OutboxService

router = APIRouter(prefix="/api/outbox", tags=["outbox"], responses=PROBLEMS)


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
    own = operator.of(OutboxService)
    gap = await own.search_gap(projection, text)
    return {"items": await own.search(projection, text, limit), "warnings": [] if gap is None else [gap]}


@router.post("/{projection}/replay")
async def replay_projection(projection: str, operator: TheOperator, body: ReplayIn | None = None) -> ReplayedOut:
    """Try failed events again, those that failed first, up to ``limit``. What needs a second operator is refused with
    409: begin it as an operation."""
    asked = body or ReplayIn()
    own = operator.named(asked.actor).of(OutboxService)
    plan = await own.plan_replay([projection], asked.limit, forgotten=asked.forgotten)
    done = await own.foresee(plan) if asked.dry_run else await own.replay(plan, asked.reason)
    return ReplayedOut.model_validate(done.numbers)


@router.post("/{projection}/rebuild", response_model=BegunOut, status_code=202)
async def rebuild_projection(projection: str, operator: TheOperator, body: RebuildIn | None = None) -> Response:
    """Begin to rebuild a projection from its source into a new index, which becomes the live one. Workers carry it out;
    ``/api/operations/{id}`` shows, pauses, resumes and cancels it."""
    asked = body or RebuildIn()
    begun = (
        await operator.named(asked.actor)
        .of(OutboxService)
        .rebuild(projection, reason=asked.reason, allow_refused=asked.allow_refused, allow_empty=asked.allow_empty)
    )
    return await _begun(operator, begun.id)


@router.post("/{projection}/verify", response_model=BegunOut, status_code=202)
async def verify_projection(projection: str, operator: TheOperator, body: VerifyIn | None = None) -> Response:
    """Begin to compare the index of a projection with its source. Workers carry it out; ``work.result`` of
    ``/api/operations/{id}`` has what differs."""
    asked = body or VerifyIn()
    own = operator.named(asked.actor).of(OutboxService)
    begun = await own.verify(projection, reason=asked.reason, repair=asked.repair)
    return await _begun(operator, begun.id)


async def _begun(operator: Operator, operation_id: str) -> Response:
    return await json_answer(202, operation=views.operation(await operator.operations.record(operation_id)))
