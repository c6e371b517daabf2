"""Routes for bulk operations: begin, list, show, pause, resume, cancel, put back."""

from __future__ import annotations

from typing import Annotated

from fastapi import Response
from pydantic import Field

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.encode import json_answer, respond
from redrive.api.filters import Before, FilterIn, Limit, States
from redrive.api.shared_routes import api_router
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action, Canary, Operation, Then
from redrive.ops import operations, views
from redrive.ops.operator import Operator
from redrive.ops.operator.operations import BegunOperation, OperationPreview

router = api_router("/api", "bulk")


class CanaryIn(m.In):
    """The first so many go ahead. If at least ``percent`` of them succeed, the rest follows; or, with ``then`` being
    ``wait``, the operation is paused until somebody resumes it."""

    first: Annotated[int, Field(ge=1, le=500)]
    percent: Annotated[float, Field(gt=0, le=100)] = 100.0
    then: Annotated[Then, Field(strict=False)] = Then.GO_ON


class BulkIn(m.In):
    """How a retry of many is carried out."""

    rate: Annotated[float, Field(ge=operations.SLOWEST_RATE, le=1_000_000)] | None = None
    canary: CanaryIn | None = None
    stop_on_return: bool = False
    fixed: str | None = Field(None, description="What was mended; asked for where it is about everything.")
    idempotent: bool | None = Field(None, description="May the handlers run twice for one task? Asked for with fixed.")
    reason: str | None = None
    actor: str | None = None

    def made_canary(self) -> Canary | None:
        return None if self.canary is None else Canary(self.canary.first, self.canary.percent, then=self.canary.then)


class OperationIn(FilterIn, BulkIn):
    action: Annotated[Action, Field(strict=False)] = Action.RETRY
    plan_token: str | None = None
    dry_run: bool = False


class Begun(m.Out):
    operation: m.OperationOut | None
    approval: m.ApprovalOut | None
    matched: int
    needs_approval: str | None = Field(description="Why a second operator has to agree.")
    dry_run: bool
    withheld: list[m.SkippedOut] = Field(
        default=[], description="Of a dry run, among the first 500: those that their feature does not let be retried."
    )
    warnings: list[m.ObstacleOut] = Field(default=[], description="What keeps the tasks of a retry from running.")


@router.get("/operations", response_model=m.OperationPage)
async def list_operations(
    operator: TheOperator, status: States = (), limit: Limit = 50, before: Before = None
) -> Response:
    """Bulk operations, newest first."""
    found = await operator.operations.list(states=tuple(status), limit=limit, before=before)
    following = found[-1].seq if len(found) == limit else None
    return await json_answer(operations=serialize.operations(found, operator), next_before=following)


@router.post("/operations", status_code=202, response_model=Begun)
async def begin(body: OperationIn, operator: TheOperator) -> Response:
    """Retry, forget or purge any number of tasks: carried out by the workers piece by piece, whatever crashes. Large
    and dangerous ones wait for a second operator."""
    if body.dry_run:
        seen = await operator.named(body.actor).operations.preview(body.action, body.failures(), body.plan_token)
        return await respond_preview(seen)
    return await begin_operation(body.action, body.failures(), body, operator, body.plan_token)


@router.get("/operations/{operation_id}", response_model=m.OperationOut)
async def show_operation(operation_id: str, operator: TheOperator) -> Response:
    record = await operator.operations.record(operation_id)
    became = await operator.operations.retried(Operation.of(record))
    return await respond(views.operation(record, became, operator.sight))


@router.post("/operations/{operation_id}/pause", response_model=m.OperationOut)
async def pause(operation_id: str, by: By) -> Response:
    await by.operator.operations.pause(operation_id, by.reason)
    return await show_operation(operation_id, by.operator)


@router.post("/operations/{operation_id}/resume", response_model=m.OperationOut)
async def resume(operation_id: str, by: By) -> Response:
    await by.operator.operations.resume(operation_id, by.reason)
    return await show_operation(operation_id, by.operator)


@router.post("/operations/{operation_id}/cancel", response_model=m.OperationOut)
async def cancel(operation_id: str, by: By) -> Response:
    """What it has done so far stays done."""
    await by.operator.operations.cancel(operation_id, by.reason)
    return await show_operation(operation_id, by.operator)


@router.post("/operations/{operation_id}/put-back", status_code=202, response_model=Begun)
async def put_back(operation_id: str, by: By) -> Response:
    """Retries what a purge gave up and nobody has retried since, up to 1,000 tasks at a time."""
    return await respond_begun(await by.operator.operations.put_back(operation_id, by.reason), by.operator)


async def begin_operation(
    action: Action, which: FailureFilter, body: BulkIn, operator: Operator, plan: str | None = None
) -> Response:
    begun = await operator.named(body.actor).operations.begin(
        action,
        which,
        reason=body.reason,
        plan=plan,
        rate=body.rate,
        canary=body.made_canary(),
        stop_on_return=body.stop_on_return,
        fixed=body.fixed,
        idempotent=body.idempotent,
    )
    return await respond_begun(begun, operator)


async def respond_preview(seen: OperationPreview) -> Response:
    """Returns what an operation would be about."""
    return await json_answer(
        202,
        operation=None,
        approval=None,
        matched=seen.number,
        needs_approval=seen.approval,
        dry_run=True,
        withheld=serialize.skipped(seen.withheld),
        warnings=[views.View(one.document) for one in seen.obstacles],
    )


async def respond_begun(begun: BegunOperation, operator: Operator) -> Response:
    """Returns the operation that was begun, and what it waits for."""
    approval = begun.approval
    record = await operator.operations.record(begun.operation.id)
    return await json_answer(
        202,
        operation=views.operation(record),
        matched=begun.operation.total,
        dry_run=False,
        approval=None if approval is None else views.approval(approval),
        needs_approval=None if approval is None else approval.body["needed"],
        warnings=[views.View(one.document) for one in await operator.operations.obstacles_of(begun.operation)],
    )
