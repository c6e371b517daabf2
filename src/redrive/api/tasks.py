"""``/api/tasks``: enqueue, list, show, and what an operator does with one task."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response

from redrive.api import models as m
from redrive.api import shown
from redrive.api.access import By, TheOperator
from redrive.api.filters import Text, one_of
from redrive.api.problems import PROBLEMS
from redrive.errors import InvalidInput
from redrive.kernel.store import Query as TaskQuery
from redrive.kernel.task import check_text
from redrive.ops import actions, inspect

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
    run_at: m.Moment | None = None
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
    new: NewTask, operator: TheOperator, response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> m.NewTaskOut:  # fmt: skip
    """Enqueue one task; 200 instead of 201 when its idempotency key is known."""
    values = {name: getattr(new, name) for name in NewTask.model_fields if name not in ("job_kind", "episode_id")}
    values["kind"] = one_of(new.job_kind, new.kind, "jobKind and kind")
    values["scope"] = one_of(new.episode_id, new.scope, "episodeId and scope")
    if values["kind"] is None:
        raise InvalidInput("say which kind of task", hint='for example {"kind": "BUILD_REPORT", "payload": {}}')
    values["idempotency_key"] = one_of(new.idempotency_key, idempotency_key, "idempotencyKey and Idempotency-Key")
    task = await operator.tasks.enqueue(**values)
    response.status_code = 200 if task.deduplicated else 201
    return m.NewTaskOut.model_validate({**asdict(task), "deduplicated": task.deduplicated})


@router.get("")
async def list_tasks(
    operator: TheOperator, state: Annotated[list[str], Query()] = [],  # noqa: B006
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
    query = TaskQuery(
        inspect.parse_states(state), **checked, limit=limit,
        before=None if before is None else inspect.parse_id(before),
    )  # fmt: skip
    page = await operator.tasks.list(query)
    return m.TaskPage(tasks=shown.tasks(page.tasks, operator), next_before=page.next_before)


@single.get("/{task_id}")
async def show(task_id: UUID, operator: TheOperator) -> m.TimelineOut:
    """One task: its state, why it does not run, attempts, dead letters, operators' actions."""
    story = await operator.tasks.show(task_id)
    found = story.timeline
    return m.TimelineOut(
        task=shown.task(found.task, operator),
        why=shown.reasons(story.why, found.task, operator),
        attempts=shown.attempts(found, operator),
        dead_letters=shown.letters(found.dead_letters, operator),
        audit=[m.AuditOut.model_validate(row) for row in found.audit],
    )


@single.post("/{task_id}/retry")
async def retry(task_id: UUID, by: By) -> m.TaskOut:
    """Run a failed or cancelled task again, with fresh attempts."""
    return shown.task(await by.operator.tasks.retry(task_id, by.reason), by.operator)


@single.post("/{task_id}/cancel")
async def cancel(task_id: UUID, by: By) -> m.TaskOut:
    """Cancel a task that waits or failed; a running one is asked to stop."""
    return await _done(task_id, await by.operator.tasks.cancel([task_id], by.reason), "cancelled", by)


@single.post("/{task_id}/pause")
async def pause(task_id: UUID, by: By) -> m.TaskOut:
    """Keep a waiting task from being claimed."""
    return await _done(task_id, await by.operator.tasks.pause([task_id], by.reason), "paused", by)


@single.post("/{task_id}/resume")
async def resume(task_id: UUID, by: By) -> m.TaskOut:
    """Let a paused task run again."""
    return await _done(task_id, await by.operator.tasks.resume([task_id], by.reason), "resumed", by)


async def _done(task_id: UUID, result: actions.Result, verb: str, by: By) -> m.TaskOut:
    """The task as it is now; an error says why, if nothing was done."""
    actions.insist(result, verb)
    return shown.task(await by.operator.tasks.get(task_id), by.operator)
