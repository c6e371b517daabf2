"""Routes for beginning bulk operations, and for erasing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from fastapi import Response
from pydantic import Field, create_model

from redrive.api import models as m
from redrive.api.access import TheOperator
from redrive.api.declared import answer_model
from redrive.api.encode import json_answer, respond
from redrive.api.filters import FilterIn
from redrive.api.routers import api_router
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.ops import views
from redrive.ops.filters import one_of
from redrive.ops.inspect import parse_id
from redrive.ops.operations import erase
from redrive.ops.operations.lifecycle import HOW, How
from redrive.ops.operator import Operator
from redrive.ops.operator.declared import document, view_of
from redrive.ops.operator.operations import BegunOperation, BegunView, OperationPreview
from redrive.ops.views import ObstacleView, SkippedView

router = api_router("/api", "bulk")


if TYPE_CHECKING:
    HowIn: TypeAlias = m.In
else:
    HowIn = create_model("HowIn", __base__=m.In, **m.fields_of(HOW.parts))


class BulkIn(HowIn):
    """How a retry of many is carried out."""

    reason: str | None = None
    actor: str | None = None

    @property
    def how(self) -> How:
        made: How = m.given_by(self, [HOW])["how"]
        return made


class OperationIn(FilterIn, BulkIn):
    action: Annotated[Action, Field(strict=False)] = Action.RETRY
    plan_token: str | None = None
    dry_run: bool = False


@router.post("/operations", status_code=202, response_model=answer_model(BegunView))
async def begin(body: OperationIn, operator: TheOperator) -> Response:
    """Retry, forget or purge any number of tasks: carried out by the workers piece by piece, whatever crashes. Large
    and dangerous ones wait for a second operator."""
    if body.dry_run:
        seen = await operator.named(body.actor).operations.preview(body.action, body.failures(), body.plan_token)
        return await respond_preview(seen, operator)
    return await begin_operation(body.action, body.failures(), body, operator, body.plan_token)


async def begin_operation(
    action: Action, which: FailureFilter, body: BulkIn, operator: Operator, plan: str | None = None
) -> Response:
    begun = await operator.named(body.actor).operations.begin(
        action, which, reason=body.reason, plan=plan, how=body.how
    )
    return await respond_begun(begun, operator)


async def respond_preview(seen: OperationPreview, operator: Operator) -> Response:
    """Returns what an operation would be about."""
    withheld = [SkippedView(task_id, why) for task_id, why in seen.withheld.items()]
    warned = [view_of(ObstacleView, one) for one in seen.obstacles]
    return await respond(
        document(BegunView(None, None, seen.number, seen.approval, True, withheld, warned), operator.sight), 202
    )


async def respond_begun(begun: BegunOperation, operator: Operator) -> Response:
    """Returns the operation that was begun, and what it waits for."""
    return await respond(document(await operator.operations.begun(begun), operator.sight), 202)


class EraseIn(m.In):
    """One scope, or one task."""

    scope: str | None = None
    episode_id: str | None = None
    task_id: str | None = None
    reason: str | None = None
    dry_run: bool = False
    actor: str | None = None


class EraseOut(m.Out):
    operation: m.OperationOut | None
    approval: m.ApprovalOut | None
    places: dict[str, int] = Field(description="How many, by place; those that run now are in the way.")
    needs_approval: str | None = Field(description="Why a second operator has to agree.")
    not_covered: str
    dry_run: bool


@router.post("/erase", status_code=202, response_model=EraseOut)
async def erase_data(body: EraseIn, operator: TheOperator) -> Response:
    """Remove what is known about a scope or a task: payloads, results, messages, stacks, keys, labels, and what the
    audit log and its archive say about it. Waiting and failed tasks are given up with it; while one runs, it is
    refused. What stays are ids, kinds, states, times and totals."""
    named = operator.named(body.actor)
    scope = one_of(body.episode_id, body.scope, "episodeId and scope")
    task_id = None if body.task_id is None else parse_id(body.task_id)
    seen = await named.erasures.preview(scope, task_id)
    begun = None if body.dry_run else await named.erasures.begin(scope, task_id, reason=body.reason)
    record = None if begun is None else await operator.operations.record(begun.operation.id)
    approval = None if begun is None else begun.approval
    return await json_answer(
        200 if record is None else 202,
        operation=None if record is None else views.operation(record),
        approval=None if approval is None else document(approval, operator.sight),
        places=seen.places,
        needs_approval=seen.approval,
        not_covered=erase.NOT_COVERED,
        dry_run=body.dry_run,
    )
