"""A run that is settled without its handler: its lease is not renewed, and what its handler still returns is late."""

from __future__ import annotations

import io
import json
import time
from collections.abc import AsyncIterator

import pytest

from redrive import App, Context
from redrive.kernel.commit import Commit
from redrive.kernel.outcome import StopReason
from redrive.observe.logs import TaskLog
from redrive.settings import Options, load_settings
from redrive.worker.run import Run
from redrive.worker.worker import Worker


@pytest.fixture
async def app() -> AsyncIterator[App]:
    made = App(settings=load_settings(url="sqlite:///:memory:", log_format="off"))
    yield made
    await made.close()


async def overdue(app: App, log: TaskLog | None = None) -> tuple[Worker, Run]:
    """A worker that does not run, and in its hands a task that was told to stop and whose heartbeat is due."""

    @app.task("T")
    async def t(ctx: Context) -> None: ...

    await t.enqueue()
    worker = app.worker(await app.store(), Options(concurrency=1), log=log)
    await worker.prepare()
    cycle = await worker.store.cycle(Commit(), worker._want())
    worker.runs.reserve(1)
    run = worker.attempts.take(cycle.claimed[0], time.monotonic() - worker.settings.heartbeat)
    run.ask_to_stop(StopReason.TIMEOUT)
    return worker, run


@pytest.mark.parametrize("abandoned", [False, True])
async def test_its_lease_is_not_renewed(app: App, abandoned: bool) -> None:
    worker, run = await overdue(app)
    if abandoned:
        worker.attempts.abandon(run)
    asked = run.renewed_at
    await worker.leases._renew(time.monotonic())
    assert (run.renewed_at == asked) is abandoned


async def test_what_its_handler_raised_is_told(app: App) -> None:
    said = io.StringIO()
    worker, run = await overdue(app, TaskLog(said, style="json"))
    worker.attempts.abandon(run)
    run.context._asked_to_stop = True
    assert run.handler is not None
    outcome = worker.attempts._runner._raised(run, OSError("the disk is gone"), run.handler)
    worker.attempts.finish(run, outcome)
    line = json.loads(said.getvalue().splitlines()[-1])
    assert (line["event"], line["outcome"], line["message"]) == ("task.late", "failed", "OSError: the disk is gone")
