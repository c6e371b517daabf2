"""Routes of ``/api/tasks``: enqueue, list, show, and what an operator does with one task."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Query, Response
from pydantic import Field

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, OnConnection, TheApp, TheOperator
from redrive.api.encode import json_answer, respond
from redrive.api.filters import Text, WhichTasks
from redrive.api.routers import api_router
from redrive.errors import InvalidInput
from redrive.kernel.task import (
    MAX_ATTEMPTS,
    MAX_DELAY_SECONDS,
    MAX_TEXT,
    MAX_TIMEOUT_SECONDS,
    PRIORITY_MAX,
    PRIORITY_MIN,
)
from redrive.kernel.trace import split_trace
from redrive.ops import actions, filters, inspect
from redrive.ops.filters import one_of
from redrive.ops.views import AttemptView, DeadLetterView, Open, ReasonView, TaskView

router = api_router("/api/tasks", "tasks")
single = api_router("/api/tasks", "tasks")


def _within(words: str, low: float, high: float) -> Any:
    """Tells readers of the API's description what the kernel takes; it is the kernel that refuses."""
    return Field(None, description=words, json_schema_extra={"minimum": low, "maximum": high})


class NewTask(m.In):
    """The arguments of ``App.enqueue``; ``jobKind`` is ``kind``, ``episodeId`` is ``scope``."""

    kind: str | None = None
    job_kind: str | None = None
    payload: Any = None
    queue: str | None = None
    priority: int | None = _within("smaller ones first", PRIORITY_MIN, PRIORITY_MAX)
    delay: float | None = _within("seconds", 0, MAX_DELAY_SECONDS)
    run_at: m.Moment | None = None
    max_attempts: int | None = _within("with the first", 1, MAX_ATTEMPTS)
    timeout: float | None = _within("seconds an attempt may take", 0.001, MAX_TIMEOUT_SECONDS)
    group: str | None = None
    scope: str | None = None
    episode_id: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None


@dataclass(slots=True, frozen=True)
class TaskPage:
    tasks: list[TaskView]
    next_before: Annotated[UUID | None, Open("Give it as `before` for the next page.")]


@dataclass(slots=True, frozen=True)
class TimelineView:
    task: TaskView
    why: Annotated[list[ReasonView], Open("Why it does not run; empty when it does, or is done.")]
    attempts: list[AttemptView]
    dead_letters: list[DeadLetterView]
    audit: list[m.AuditOut]


@router.post(
    "",
    status_code=201,
    response_model=m.TaskOut,
    responses={200: {"model": m.TaskOut, "description": "Its key is known: the task that it names"}},
)
async def enqueue(
    new: NewTask,
    operator: TheOperator,
    app: TheApp,
    idempotency_key: Annotated[str | None, Header()] = None,
    traceparent: Annotated[str | None, Header()] = None,
    connection: OnConnection = None,
) -> Response:
    """Enqueue one task, on the connection of its route; 200 instead of 201 when its idempotency key is known. The
    caller's ``traceparent`` (W3C) is kept with it, unless ``traceId`` says another."""
    values = {name: getattr(new, name) for name in NewTask.model_fields if name not in ("job_kind", "episode_id")}
    values["kind"] = one_of(new.job_kind, new.kind, "jobKind and kind")
    values["scope"] = one_of(new.episode_id, new.scope, "episodeId and scope")
    if values["kind"] is None:
        raise InvalidInput("say which kind of task", hint='for example {"kind": "BUILD_REPORT", "payload": {}}')
    values["idempotency_key"] = one_of(new.idempotency_key, idempotency_key, "idempotencyKey and Idempotency-Key")
    if new.trace_id is None and traceparent is not None and len(traceparent) <= MAX_TEXT:
        values["trace_id"] = split_trace(traceparent)[1]  # a broken one is to be ignored, as one that is too long
    if connection is None and (routed := app.connection_of(values["kind"])) != operator.connection:
        operator = (await app.operator(operator.caller, routed)).for_pages()
    await asyncio.sleep(0)  # the body was parsed in one go, and is encoded in one: others have their turn in between
    task = await operator.tasks.enqueue(**values)
    return await respond(serialize.task(task, operator), 200 if task.deduplicated else 201)


@router.get("", response_model=m.model_of(TaskPage))
async def list_tasks(
    operator: TheOperator,
    which: WhichTasks,
    state: Annotated[list[str], Query()] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Text = None,
) -> Response:
    """Tasks, newest first. ``nextBefore`` continues: stable while tasks are added."""
    after = None if before is None else inspect.parse_id(before)
    query = filters.query(which, states=inspect.parse_states(state), limit=limit, before=after)
    page = await operator.tasks.list(query)
    return await json_answer(tasks=serialize.tasks(page.tasks, operator), next_before=page.next_before)


@single.get("/{task_id}", response_model=m.model_of(TimelineView))
async def show(task_id: UUID, operator: TheOperator) -> Response:
    """One task: its state, why it does not run, the latest of its attempts, dead letters and operators' actions."""
    return await respond(serialize.story(await operator.tasks.show(task_id), operator))


@single.get("/{task_id}/payload", response_model=Any)
async def payload(task_id: UUID, operator: TheOperator) -> Response:
    """What a task was given, however long it is."""
    return await respond(await operator.tasks.document(task_id, "payload"))


@single.get("/{task_id}/result", response_model=Any)
async def result(task_id: UUID, operator: TheOperator) -> Response:
    """What a completed task has returned."""
    return await respond(await operator.tasks.document(task_id, "result"))


@single.post("/{task_id}/retry", response_model=m.TaskOut)
async def retry(task_id: UUID, by: By) -> Response:
    """Run a failed or cancelled task again, with fresh attempts."""
    return await respond(serialize.task(await by.operator.tasks.retry(task_id, by.reason), by.operator))


@single.post("/{task_id}/cancel", response_model=m.TaskOut)
async def cancel(task_id: UUID, by: By) -> Response:
    """Cancel a task that waits or failed; a running one is asked to stop."""
    return await _done(task_id, await by.operator.tasks.cancel([task_id], by.reason), "cancelled", by)


@single.post("/{task_id}/pause", response_model=m.TaskOut)
async def pause(task_id: UUID, by: By) -> Response:
    """Keep a waiting task from being claimed."""
    return await _done(task_id, await by.operator.tasks.pause([task_id], by.reason), "paused", by)


@single.post("/{task_id}/resume", response_model=m.TaskOut)
async def resume(task_id: UUID, by: By) -> Response:
    """Let a paused task run again."""
    return await _done(task_id, await by.operator.tasks.resume([task_id], by.reason), "resumed", by)


async def _done(task_id: UUID, result: actions.Result, verb: str, by: By) -> Response:
    """Returns the task as it is now; raises with the reason if nothing was done."""
    actions.insist(result, verb)
    return await respond(serialize.task(await by.operator.tasks.get(task_id), by.operator))
