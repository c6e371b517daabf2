"""``/api/tasks``: enqueue, list, show."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, ConfigDict

from redrive.app import App
from redrive.kernel.store import Query as TaskQuery
from redrive.ops import inspect

router = APIRouter(prefix="/api/tasks", tags=["tasks"])


class NewTask(BaseModel):
    """The arguments of ``App.enqueue``."""

    model_config = ConfigDict(extra="forbid")

    kind: str
    payload: Any = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    run_at: datetime | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None


@router.post("", status_code=201)
async def enqueue(
    new: NewTask, request: Request, response: Response, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    """Enqueue one task; 200 instead of 201 when its idempotency key is known."""
    values = {name: getattr(new, name) for name in NewTask.model_fields}
    values["idempotency_key"] = new.idempotency_key or idempotency_key
    task = await _app(request).enqueue(**values)
    response.status_code = 200 if task.deduplicated else 201
    return inspect.as_dict(task)


@router.get("")
async def list_tasks(
    request: Request, state: Annotated[list[str], Query()] = [], kind: str | None = None, queue: str | None = None,  # noqa: B006
    limit: int = 50, before: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tasks, newest first."""
    query = TaskQuery(
        inspect.parse_states(state),
        kind,
        queue,
        limit=limit,
        before=None if before is None else inspect.parse_id(before),
    )
    page = await inspect.list_tasks(await _app(request).store(), query)
    return {"tasks": [inspect.as_dict(task) for task in page.tasks], "next_before": inspect.plain(page.next_before)}


@router.get("/{task_id}")
async def show(task_id: str, request: Request) -> dict[str, Any]:
    """One task with its attempts, dead letters and audit."""
    found = await inspect.show(await _app(request).store(), inspect.parse_id(task_id))
    rest = {name: value for name, value in asdict(found).items() if name != "task"}
    return {"task": inspect.as_dict(found.task), **jsonable_encoder(rest)}


def _app(request: Request) -> App:
    app: App = request.app.state.redrive
    return app
