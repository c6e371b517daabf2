"""Serves ``POST /api/worker/run``: does what is due now, for platforms that wake a program by HTTP."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Annotated

from fastapi import Depends, Request
from pydantic import Field

from redrive.api import models as m
from redrive.api.access import Bearer, TheApp, Unauthorized, bearer, refuse_unknown_filters, wrong_tokens
from redrive.api.routers import api_router
from redrive.app import App
from redrive.errors import InvalidTransition, NotAllowed
from redrive.kernel.operation import Status
from redrive.ops.access import Caller, Role
from redrive.settings import Options
from redrive.worker.worker import Worker

router = api_router("/api/worker", "worker")


class TriggeredWorker:
    """The worker that a call has started. It lives in a task of its own: neither a caller who hangs up nor a server
    that stops may cut it off in the middle."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._task: asyncio.Task[None] | None = None
        self._halted = False

    async def run(self, worker: Worker) -> None:
        """Runs a worker until nothing is due, or until it is enough."""
        if self._halted:
            raise InvalidTransition("this process is stopping", hint="call another one, or this one when it is back")
        if self._task is not None and not self._task.done():
            raise InvalidTransition("a run is under way in this process", hint="it answers when it is done")
        self._worker, self._task = worker, asyncio.create_task(worker.run(), name="redrive-triggered")
        await asyncio.shield(self._task)

    def halt(self) -> None:
        """Makes it claim no more and lets no other start; what it holds is finished or handed back."""
        self._halted = True
        if self._worker is not None:
            self._worker.stop()

    async def stop(self) -> None:
        """Does the same, and waits until it has ended."""
        self.halt()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class RunIn(m.In):
    """Which queues (all of the application's unless said), and when it is enough."""

    queues: Annotated[list[str], Field(min_length=1, max_length=100)] | None = None
    max_jobs: Annotated[int, Field(ge=1, le=100_000)] | None = None
    max_seconds: Annotated[float, Field(gt=0, le=3600)] = 25.0


class RunOut(m.Out):
    worker_id: str
    claimed: int
    completed: int
    requeued: int
    failed: int
    cancelled: int
    seconds: float
    drained: bool = Field(
        description="Nothing was left to do. False when a limit ended it, or a bulk operation goes on."
    )


async def with_secret(request: Request) -> None:
    """Lets in whoever has the worker secret; wrong ones are counted with wrong tokens."""
    app: App = request.app.state.redrive
    secret = app.settings.internal_worker_secret
    if secret is None:
        raise NotAllowed("workers are not run over HTTP here", hint="INTERNAL_WORKER_SECRET switches it on")
    credentials = await bearer(request)
    given = "" if credentials is None else credentials.credentials
    if not secrets.compare_digest(given.encode(), secret.encode()):
        wrong_tokens(request).failed(request)
        raise Unauthorized("the worker secret is needed", hint="Authorization: Bearer, with INTERNAL_WORKER_SECRET")


def described(request: Request, _: Bearer) -> None:
    """Does nothing: ``with_secret`` has asked for the secret already, and this describes it in the API's document."""
    refuse_unknown_filters(request)


@router.post("/run", dependencies=[Depends(described)])
async def run(request: Request, app: TheApp, body: RunIn | None = None) -> RunOut:
    """Run a worker in this process until nothing is due, or until it is enough; then it lets what runs finish. One run
    at a time."""
    wanted = body or RunIn()
    operator = await app.operator(Caller("worker-secret", Role.VIEWER))
    for name in wanted.queues or ():
        await operator.control.check_queue(name)
    options = Options(
        queues=tuple(wanted.queues or app.queues()),
        concurrency=app.settings.concurrency,
        sleep=app.settings.interval,
        max_jobs=wanted.max_jobs,
        max_time=wanted.max_seconds,
        stop_when_empty=True,
    )
    triggered: TriggeredWorker = request.app.state.triggered
    worker, began = app.worker(await app.store(), options), time.monotonic()
    await triggered.run(worker)
    seconds, done = time.monotonic() - began, worker.health
    enough = seconds >= wanted.max_seconds or done.claimed >= (wanted.max_jobs or done.claimed + 1)
    bulk = await operator.operations.records(states=(Status.RUNNING.value,), limit=1)
    return RunOut(
        worker_id=worker.id,
        claimed=done.claimed,
        completed=done.completed,
        requeued=done.requeued,
        failed=done.failed,
        cancelled=done.cancelled,
        seconds=round(seconds, 3),
        drained=not enough and not bulk,
    )
