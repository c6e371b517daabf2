"""Routes for approvals: list what waits for a second operator, approve, reject."""

from __future__ import annotations

from fastapi import Response

from redrive.api import models as m
from redrive.api.access import By, TheOperator
from redrive.api.encode import json_answer, respond
from redrive.api.filters import Before, Limit, States
from redrive.api.shared_routes import api_router
from redrive.ops import views

router = api_router("/api", "bulk")


@router.get("/approvals", response_model=m.ApprovalPage)
async def list_approvals(
    operator: TheOperator, state: States = (), limit: Limit = 50, before: Before = None
) -> Response:
    """What waits for a second operator, and what became of it, newest first."""
    found = await operator.approvals.list(states=tuple(state), limit=limit, before=before)
    following = found[-1].seq if len(found) == limit else None
    warned = {one.id: await operator.approvals.obstacles(one) for one in found}
    shown = (views.approval(one, warned[one.id]) for one in found)
    return await json_answer(approvals=shown, next_before=following)


@router.post("/approvals/{approval_id}/approve", response_model=m.ApprovalOut)
async def approve(approval_id: str, by: By) -> Response:
    """By somebody else than who asked; the operation begins at once."""
    record = await by.operator.approvals.approve(approval_id, by.reason)
    return await respond(views.approval(record, await by.operator.approvals.obstacles(record)))


@router.post("/approvals/{approval_id}/reject", response_model=m.ApprovalOut)
async def reject(approval_id: str, by: By) -> Response:
    return await respond(views.approval(await by.operator.approvals.reject(approval_id, by.reason)))
