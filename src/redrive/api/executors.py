"""Routes for executors: a program claims tasks, keeps their leases, and reports what came of them.

The lease token that a claim returns is the fence: a report with any other one changes nothing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Response
from pydantic import Field

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.encode import respond
from redrive.api.routers import api_router
from redrive.kernel.failure import FailureType
from redrive.ops import executor, views

router = api_router("/api/tasks", "executors")
Seconds = Annotated[float, Field(ge=1, le=86_400)]


class ClaimIn(m.In):
    worker_id: str
    queues: Annotated[list[str], Field(min_length=1, max_length=100)] = ["default"]  # noqa: RUF012
    kinds: Annotated[list[str], Field(max_length=1000)] | None = None
    count: Annotated[int, Field(ge=1, le=500)] = 1
    lease_seconds: Seconds = 600.0


class ClaimedOut(m.EarlierNames):
    id: UUID
    kind: str
    queue: str
    payload: Any
    attempt: int
    max_attempts: int
    scope: str | None
    trace_id: str | None
    traceparent: str | None = Field(
        description="The context of whoever enqueued it, as a W3C traceparent; a tracestate follows behind a space."
    )
    lease_token: UUID


class HeartbeatIn(m.In):
    lease_token: m.Id
    lease_seconds: Seconds = 600.0
    progress: Any = None


class HeartbeatOut(m.Out):
    cancelled: list[UUID] = Field(
        description="Tasks that somebody wants cancelled, of those asked about: stop, and report them as cancelled."
    )


class ReportIn(m.In):
    """``completed`` with a result, ``failed`` (tried again while attempts remain, unless ``errorCode`` says that it is
    not worth it), ``cancelled``, or ``released``: given back without using up the attempt. Of a failure
    ``errorReason`` (a name such as ``http_5xx``; a sentence joins the message), ``failureType`` and
    ``errorStack`` are kept, as of our own workers."""

    lease_token: m.Id
    outcome: Literal["completed", "failed", "cancelled", "released"]
    result: Any = None
    error_code: str | None = None
    error_message: str | None = None
    error_reason: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    failure_type: Annotated[FailureType, Field(strict=False)] | None = None
    error_stack: str | None = None
    retry_after_seconds: Annotated[float, Field(ge=0, le=31_536_000)] | None = Field(
        default=None,
        description="Of a failure that is tried again: the next attempt begins so many seconds from now, instead of "
        "after the backoff.",
    )
    execution_ms: Annotated[float, Field(ge=0, le=1e12)] | None = None


@router.post("/claim", response_model=list[ClaimedOut])
async def claim(body: ClaimIn, operator: TheOperator) -> Response:
    """Lease tasks; each comes with the token to report by."""
    found = await operator.executors.claim(body.worker_id, body.queues, body.count, body.lease_seconds, body.kinds)
    return await respond(serialize.with_earlier_names(views.claimed(task)) for task in found)


@router.post("/{task_id}/heartbeat")
async def heartbeat(task_id: UUID, body: HeartbeatIn, operator: TheOperator) -> HeartbeatOut:
    """Keep the lease, and hear whether the task is still wanted; 409 when the lease is lost, and the work is to be
    stopped."""
    return HeartbeatOut(
        cancelled=await operator.executors.heartbeat(task_id, body.lease_token, body.lease_seconds, body.progress)
    )


@router.post("/{task_id}/report", response_model=m.TaskOut)
async def report(task_id: UUID, body: ReportIn, operator: TheOperator) -> Response:
    """The outcome of an attempt. 409 when the lease is not, or no longer, the caller's."""
    said = executor.outcome(
        body.outcome,
        body.result,
        body.error_code,
        body.error_message,
        body.retry_after_seconds,
        reason=body.error_reason,
        type=body.failure_type,
        stack=body.error_stack,
    )
    task = await operator.executors.report(task_id, body.lease_token, said, body.execution_ms)
    return await respond(serialize.task(task, operator))
