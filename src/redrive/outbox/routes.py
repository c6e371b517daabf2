"""``/api/outbox``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from redrive.feature.api import PROBLEMS, Out, TheOperator
from redrive.outbox.service import MOST_HITS, OutboxService

router = APIRouter(prefix="/api/outbox", tags=["outbox"], responses=PROBLEMS)


class ProjectionOut(Out):
    projection: str
    sink: str | None
    pending: int
    processing: int
    done: int
    failed: int
    lag: int
    stuck: int
    oldest_age: float | None


class ProjectionsOut(Out):
    items: list[ProjectionOut]


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


@router.get("/{projection}/search", response_model=HitsOut)
async def search_projection(
    projection: str,
    operator: TheOperator,
    text: Annotated[str, Query(min_length=1, max_length=1000)],
    limit: Annotated[int, Query(ge=1, le=MOST_HITS)] = 10,
) -> dict[str, Any]:
    """Search the documents of a projection, where its sink can."""
    return {"items": await operator.of(OutboxService).search(projection, text, limit)}
