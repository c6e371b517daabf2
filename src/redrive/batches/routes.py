"""``/api/batches``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.encode import json_answer
from redrive.api.operations import Begun, BulkIn, respond_begun, respond_preview
from redrive.batches.service import BatchService
from redrive.batches.shown import batch_document, failures_document
from redrive.feature.api import PROBLEMS, In, Out, TheOperator
from redrive.ops import inspect

router = APIRouter(prefix="/api/batches", tags=["batches"], responses=PROBLEMS)
Limit = Annotated[int, Query(ge=1, le=500)]


class BatchOut(Out):
    """A batch with the counts of its items; ``pending`` ones wait or run."""

    id: str
    name: str | None
    key: str | None
    meta: Any
    scope: str | None
    state: str
    open: bool
    total: int
    pending: int
    completed: int
    failed: int
    cancelled: int
    created_at: datetime
    created_by: str
    ended_at: datetime | None
    succeeded_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None
    cancel_reason: str | None
    cancel_operation: str | None
    fault: str | None


class BatchPage(Out):
    batches: list[BatchOut]
    next_before: str | None


class CauseOut(Out):
    fingerprint: str
    failed: int
    code: str
    failure_type: str


class FailuresOut(Out):
    by_type: dict[str, int]
    by_code: dict[str, int]
    causes: list[CauseOut]


class BatchRetryIn(BulkIn):
    dry_run: bool = False


class CancelIn(In):
    reason: str | None = None
    actor: str | None = None
    dry_run: bool = False


class ItemIn(In):
    """The arguments of ``App.enqueue``."""

    kind: str
    payload: Any = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    group: str | None = None
    scope: str | None = None
    idempotency_key: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ItemIn.model_fields}


class BatchIn(In):
    tasks: list[ItemIn]
    on_complete: ItemIn | None = None
    on_success: ItemIn | None = None
    name: str | None = None
    key: str | None = None
    meta: Any = None
    scope: str | None = None


@router.post("", status_code=201, response_model=BatchOut)
async def create_batch(body: BatchIn, operator: TheOperator) -> dict[str, Any]:
    """Make a batch of tasks; the same key again is the batch that is there."""
    made = await operator.of(BatchService).create(
        [one.given() for one in body.tasks],
        on_complete=None if body.on_complete is None else body.on_complete.given(),
        on_success=None if body.on_success is None else body.on_success.given(),
        name=body.name,
        key=body.key,
        meta=body.meta,
        scope=body.scope,
    )
    return batch_document(made)


@router.get("", response_model=BatchPage)
async def list_batches(
    operator: TheOperator, state: str | None = None, limit: Limit = 50, before: UUID | None = None
) -> dict[str, Any]:
    """Batches, the latest first. ``nextBefore`` continues."""
    found = await operator.of(BatchService).list(state=state, limit=limit, before=before)
    more = str(found[-1].id) if len(found) == limit else None
    return {"batches": [batch_document(one) for one in found], "next_before": more}


@router.get("/{batch}", response_model=BatchOut)
async def show_batch(batch: UUID, operator: TheOperator) -> dict[str, Any]:
    """How far a batch is."""
    return batch_document(await operator.of(BatchService).show(batch))


@router.get("/{batch}/items", response_model=m.TaskPage)
async def list_items(
    batch: UUID,
    operator: TheOperator,
    state: Annotated[list[str], Query()] = [],  # noqa: B006
    kind: str | None = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: UUID | None = None,
) -> Response:
    """The items of a batch, the latest first, as ``/api/tasks`` lists tasks."""
    page = await operator.of(BatchService).items(
        batch, states=inspect.parse_states(state), kind=kind, limit=limit, before=before
    )
    return await json_answer(tasks=serialize.tasks(page.tasks, operator), next_before=page.next_before)


@router.get("/{batch}/failures", response_model=FailuresOut)
async def show_failures(batch: UUID, operator: TheOperator) -> dict[str, Any]:
    """What its items are failed by: types, codes, causes."""
    return failures_document(await operator.of(BatchService).failures(batch))


@router.post("/{batch}/cancel", status_code=202, response_model=Begun)
async def cancel_batch(batch: UUID, operator: TheOperator, body: CancelIn | None = None) -> Response:
    """Cancel what has not ended, as one operation; nothing more can be added."""
    asked = body or CancelIn()
    own = operator.named(asked.actor)
    if asked.dry_run:
        return await respond_preview(await own.of(BatchService).preview_cancel(batch))
    return await respond_begun(await own.of(BatchService).cancel(batch, asked.reason), own)


@router.post("/{batch}/retry-failed", status_code=202, response_model=Begun)
async def retry_failed(batch: UUID, operator: TheOperator, body: BatchRetryIn | None = None) -> Response:
    """Retry the items that are failed now, as one operation."""
    asked = body or BatchRetryIn.model_validate({})
    own = operator.named(asked.actor)
    if asked.dry_run:
        return await respond_preview(await own.of(BatchService).preview_retry(batch))
    begun = await own.of(BatchService).retry_failed(batch, asked.reason, rate=asked.rate, canary=asked.made_canary())
    return await respond_begun(begun, own)
