"""``/api/tasks``: enqueue, list, show, and what an operator does with one task."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response

from redrive.api import models as m
from redrive.api import shown
from redrive.api.access import By, Opened, Operator, TheApp, Viewer
from redrive.api.filters import Text, one_of
from redrive.api.problems import PROBLEMS
from redrive.app import App
from redrive.errors import InvalidInput
from redrive.kernel.store import Query as TaskQuery
from redrive.kernel.store import Store
from redrive.kernel.task import check_text
from redrive.ops import actions, groups, inspect
from redrive.ops.access import Caller
from redrive.ops.why import why

router = APIRouter(prefix="/api/tasks", tags=["tasks"], responses=PROBLEMS)
single = APIRouter(prefix="/api/tasks", tags=["tasks"], responses=PROBLEMS)


class NewTask(m.In):
    """The arguments of ``App.enqueue``; ``jobKind`` is ``kind``, ``episodeId`` is ``scope``."""

    kind: str | None = None
    job_kind: str | None = None
    payload: Any = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    group: str | None = None
    scope: str | None = None
    episode_id: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None


@router.post(
    "",
    status_code=201,
    responses={200: {"model": m.NewTaskOut, "description": "Its key is known: the task that it names"}},
)
async def enqueue(
    new: NewTask, store: Opened, app: TheApp, caller: Operator, response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> m.NewTaskOut:  # fmt: skip
    """Enqueue one task; 200 instead of 201 when its idempotency key is known."""
    values = {name: getattr(new, name) for name in NewTask.model_fields if name not in ("job_kind", "episode_id")}
    values["kind"] = one_of(new.job_kind, new.kind, "jobKind and kind")
    values["scope"] = one_of(new.episode_id, new.scope, "episodeId and scope")
    if values["kind"] is None:
        raise InvalidInput("say which kind of task", hint='for example {"kind": "BUILD_REPORT", "payload": {}}')
    values["idempotency_key"] = one_of(new.idempotency_key, idempotency_key, "idempotencyKey and Idempotency-Key")
    task = await app.enqueue(**values)
    response.status_code = 200 if task.deduplicated else 201
    # As the store has it: times are the store's, and a worker may already be at it.
    found = await actions.require(store, task.id)
    return m.NewTaskOut.model_validate({**asdict(found), "deduplicated": task.deduplicated})


@router.get("")
async def list_tasks(
    store: Opened, app: TheApp, caller: Viewer, state: Annotated[list[str], Query()] = [],  # noqa: B006
    jobKind: Text = None, kind: Text = None, queue: Text = None, group: Text = None, episodeId: Text = None,
    scope: Text = None, traceId: Text = None, errorCode: Text = None, errorReason: Text = None,
    fingerprint: Text = None, limit: Annotated[int, Query(ge=1, le=1000)] = 50, before: Text = None,
) -> m.TaskPage:  # fmt: skip
    """Tasks, newest first. ``nextBefore`` continues: stable while tasks are added."""
    texts = {
        "kind": one_of(jobKind or None, kind or None, "jobKind and kind"), "queue": queue, "group": group,
        "scope": one_of(episodeId or None, scope or None, "episodeId and scope"), "trace_id": traceId,
        "error_code": errorCode, "error_reason": errorReason, "fingerprint": fingerprint,
    }  # fmt: skip
    checked: dict[str, Any] = {name: check_text(value or None, name) for name, value in texts.items()}
    if checked["fingerprint"] is not None:
        checked["fingerprint"] = (await groups.show(store, checked["fingerprint"])).row.fingerprint
    query = TaskQuery(
        inspect.parse_states(state), **checked, limit=limit,
        before=None if before is None else inspect.parse_id(before),
    )  # fmt: skip
    page = await inspect.list_tasks(store, query)
    return m.TaskPage(tasks=shown.tasks(page.tasks, caller, app), next_before=page.next_before)


@single.get("/{task_id}")
async def show(task_id: UUID, store: Opened, app: TheApp, caller: Viewer) -> m.TimelineOut:
    """One task: its state, why it does not run, attempts, dead letters, operators' actions."""
    found = await inspect.show(store, task_id)
    return m.TimelineOut(
        task=shown.task(found.task, caller, app),
        why=shown.reasons(await why(store, found.task), found.task, caller, app),
        attempts=shown.attempts(found, caller, app),
        dead_letters=shown.letters(found.dead_letters, caller, app),
        audit=[m.AuditOut.model_validate(row) for row in found.audit],
    )


@single.post("/{task_id}/retry")
async def retry(task_id: UUID, store: Opened, app: TheApp, caller: Operator, by: By) -> m.TaskOut:
    """Run a failed or cancelled task again, with fresh attempts."""
    actions.insist(await actions.retry(store, [task_id], **by), "retried")
    return await _now(task_id, store, app, caller)


@single.post("/{task_id}/cancel")
async def cancel(task_id: UUID, store: Opened, app: TheApp, caller: Operator, by: By) -> m.TaskOut:
    """Cancel a task that waits or failed; a running one is asked to stop."""
    actions.insist(await actions.cancel(store, [task_id], **by), "cancelled")
    return await _now(task_id, store, app, caller)


@single.post("/{task_id}/pause")
async def pause(task_id: UUID, store: Opened, app: TheApp, caller: Operator, by: By) -> m.TaskOut:
    """Keep a waiting task from being claimed."""
    actions.insist(await actions.pause_tasks(store, [task_id], **by), "paused")
    return await _now(task_id, store, app, caller)


@single.post("/{task_id}/resume")
async def resume(task_id: UUID, store: Opened, app: TheApp, caller: Operator, by: By) -> m.TaskOut:
    """Let a paused task run again."""
    actions.insist(await actions.resume_tasks(store, [task_id], **by), "resumed")
    return await _now(task_id, store, app, caller)


async def _now(task_id: UUID, store: Store, app: App, caller: Caller) -> m.TaskOut:
    return shown.task(await actions.require(store, task_id), caller, app)
