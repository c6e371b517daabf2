"""Route that erases what is known about a scope or a task."""

from __future__ import annotations

from fastapi import Response
from pydantic import Field

from redrive.api import models as m
from redrive.api.access import TheOperator
from redrive.api.encode import json_answer
from redrive.api.filters import one_of
from redrive.api.shared_routes import api_router
from redrive.ops import erase, views
from redrive.ops.inspect import parse_id

router = api_router("/api/erase", "bulk")


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


@router.post("", status_code=202, response_model=EraseOut)
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
        approval=None if approval is None else views.approval(approval),
        places=seen.places,
        needs_approval=seen.approval,
        not_covered=erase.NOT_COVERED,
        dry_run=body.dry_run,
    )
