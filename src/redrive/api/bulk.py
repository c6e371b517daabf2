"""Failure groups, bulk operations and their approvals (F5, O4, O10)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from redrive.api import models as m
from redrive.api import shown
from redrive.api.access import By, Opened, Operator, TheApp, Viewer, actor
from redrive.api.filters import FilterIn, known
from redrive.api.problems import PROBLEMS
from redrive.errors import InvalidInput, NotAllowed
from redrive.kernel.failed import Failures
from redrive.kernel.operation import COLLECTION, Action, Canary
from redrive.kernel.store import Store
from redrive.ops import approvals, groups, operations
from redrive.ops.access import Caller, Role

router = APIRouter(prefix="/api", tags=["bulk"], responses=PROBLEMS)
Limit = Annotated[int, Query(ge=1, le=500)]
Before = Annotated[int | None, Query(ge=0, le=2**62)]
States = Annotated[list[str] | tuple[str, ...], Query()]


class CanaryIn(m.In):
    """The first so many go ahead; the rest follows if at least ``percent`` of them succeed."""

    first: Annotated[int, Field(ge=1, le=500)]
    percent: Annotated[float, Field(gt=0, le=100)] = 100.0


class BulkIn(m.In):
    """How a retry of many is carried out."""

    rate: Annotated[float, Field(ge=operations.SLOWEST, le=1_000_000)] | None = None
    canary: CanaryIn | None = None
    stop_on_return: bool = False
    reason: str | None = None
    actor: str | None = None


class OperationIn(FilterIn, BulkIn):
    action: Action = Action.RETRY
    plan_token: str | None = None
    dry_run: bool = False


class GroupIn(m.In):
    """What is left out stays; null takes it back."""

    note: str | None = None
    owner: str | None = None
    muted_until: datetime | None = None
    resolved: bool | None = None
    reason: str | None = None
    actor: str | None = None


class Begun(m.Out):
    operation: m.OperationOut | None
    approval: m.ApprovalOut | None
    matched: int
    needs_approval: str | None = Field(description="Why a second operator has to agree.")
    dry_run: bool


@router.get("/failure-groups")
async def list_groups(
    store: Opened, app: TheApp, caller: Viewer, limit: Limit = 50, status: str | None = None,
    before: Annotated[str | None, Query(max_length=200)] = None,
) -> m.GroupPage:  # fmt: skip
    """Failures by cause, the latest first."""
    found = await groups.list_groups(store, limit=limit, status=status, before=before)
    following = found[-1].place if len(found) == limit else None
    return m.GroupPage(groups=await shown.groups(found, store, caller, app), next_before=following)


@router.get("/failure-groups/{fingerprint}")
async def show_group(fingerprint: str, store: Opened, app: TheApp, caller: Viewer) -> m.GroupOut:
    """Also by the beginning of its fingerprint, if only one begins so."""
    return (await shown.groups([await groups.show(store, fingerprint)], store, caller, app))[0]


@router.patch("/failure-groups/{fingerprint}")
async def annotate_group(fingerprint: str, body: GroupIn, store: Opened, app: TheApp, caller: Operator) -> m.GroupOut:
    """A note, an owner, silence until some time, or "resolved": it opens again when the failure comes back."""
    said: dict[str, Any] = {
        name: getattr(body, name)
        for name in ("note", "owner", "muted_until", "resolved")
        if name in body.model_fields_set
    }
    if (until := said.get("muted_until")) is not None and until.tzinfo is None:
        raise InvalidInput("mutedUntil needs a time zone", hint="for example 2026-11-15T12:00:00Z")
    found = await groups.annotate(store, fingerprint, actor=actor(caller, body.actor), reason=body.reason, **said)
    return (await shown.groups([found], store, caller, app))[0]


@router.post("/failure-groups/{fingerprint}/retry", status_code=202)
async def retry_group(fingerprint: str, body: BulkIn, store: Opened, app: TheApp, caller: Operator) -> Begun:
    """Retry everything that is failed by this cause, as a bulk operation."""
    found = await groups.show(store, fingerprint)
    return await _begin(Action.RETRY, Failures(fingerprint=found.row.fingerprint), body, store, app, caller)


@router.get("/operations")
async def list_operations(
    store: Opened, caller: Viewer, status: States = (), limit: Limit = 50, before: Before = None
) -> m.OperationPage:
    """Bulk operations, newest first."""
    found = await operations.list_operations(store, states=tuple(status), limit=limit, before=before)
    following = found[-1].seq if len(found) == limit else None
    return m.OperationPage(operations=[shown.operation(record) for record in found], next_before=following)


@router.post("/operations", status_code=202)
async def begin(body: OperationIn, store: Opened, app: TheApp, caller: Operator) -> Begun:
    """Retry, forget or purge any number of tasks: carried out by the workers piece by piece, whatever crashes. Large
    and dangerous ones wait for a second operator."""
    which = await known(body.failures(), store, app)
    if body.action is Action.PURGE and caller.role < Role.ADMIN:
        raise NotAllowed(f"{caller.name} is {caller.role.label}; a purge needs admin")
    if body.dry_run:
        seen, above = await operations.foresee(store, body.action, which, body.plan_token), app.settings.approved_above
        needed = None if above is None else approvals.reason_for(seen, above)
        return Begun(operation=None, approval=None, matched=seen.total, needs_approval=needed, dry_run=True)
    return await _begin(body.action, which, body, store, app, caller, body.plan_token)


@router.get("/operations/{operation_id}")
async def show_operation(operation_id: str, store: Opened, caller: Viewer) -> m.OperationOut:
    return await _operation(store, operation_id)


@router.post("/operations/{operation_id}/pause")
async def pause(operation_id: str, store: Opened, by: By) -> m.OperationOut:
    await operations.pause(store, operation_id, **by)
    return await _operation(store, operation_id)


@router.post("/operations/{operation_id}/resume")
async def resume(operation_id: str, store: Opened, by: By) -> m.OperationOut:
    await operations.resume(store, operation_id, **by)
    return await _operation(store, operation_id)


@router.post("/operations/{operation_id}/cancel")
async def cancel(operation_id: str, store: Opened, by: By) -> m.OperationOut:
    """What it has done so far stays done."""
    await operations.cancel(store, operation_id, **by)
    return await _operation(store, operation_id)


@router.get("/approvals")
async def list_approvals(
    store: Opened, caller: Viewer, state: States = (), limit: Limit = 50, before: Before = None
) -> m.ApprovalPage:
    """What waits for a second operator, and what became of it, newest first."""
    found = await approvals.list_approvals(store, states=tuple(state), limit=limit, before=before)
    following = found[-1].seq if len(found) == limit else None
    return m.ApprovalPage(approvals=[shown.approval(record) for record in found], next_before=following)


@router.post("/approvals/{approval_id}/approve")
async def approve(approval_id: str, store: Opened, by: By) -> m.ApprovalOut:
    """By somebody else than who asked; the operation begins at once."""
    return shown.approval(await approvals.approve(store, approval_id, **by))


@router.post("/approvals/{approval_id}/reject")
async def reject(approval_id: str, store: Opened, by: By) -> m.ApprovalOut:
    return shown.approval(await approvals.reject(store, approval_id, **by))


async def _begin(
    action: Action, which: Failures, body: BulkIn, store: Store, app: TheApp, caller: Caller, plan: str | None = None
) -> Begun:
    canary = None if body.canary is None else Canary(body.canary.first, body.canary.percent)
    operation, approval = await operations.begin(
        store, action, which, actor=actor(caller, body.actor), reason=body.reason, plan=plan, rate=body.rate,
        canary=canary, stop_on_return=body.stop_on_return, approvals_above=app.settings.approved_above,
    )  # fmt: skip
    return Begun(
        operation=await _operation(store, operation.id), matched=operation.total, dry_run=False,
        approval=None if approval is None else shown.approval(approval),
        needs_approval=None if approval is None else approval.body["needed"],
    )  # fmt: skip


async def _operation(store: Store, operation_id: str) -> m.OperationOut:
    await operations.show(store, operation_id)
    record = await store.record(COLLECTION, operation_id)
    assert record is not None
    return shown.operation(record)
