"""Log lines and counters tell what became of a task, not what its attempt asked for."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from redrive import App, Context, Snooze, State
from redrive.kernel.commit import CancelRequest, Commit
from redrive.observe.logs import TaskLog
from redrive.ops.history import history
from redrive.settings import Options

pytestmark = pytest.mark.anyio


async def lines_of(app: App, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Runs until nothing is left; returns the counters, and the log."""
    stream = io.StringIO()
    chosen = Options(concurrency=5, stop_when_empty=True, **options)
    worker = app.worker(await app.store(), chosen, log=TaskLog(stream, "json"))
    await asyncio.wait_for(worker.run(), 60)
    return worker.health, [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("how", ["retry", "snooze"])
async def test_a_cancel_that_came_before_the_requeue(app: App, how: str) -> None:
    """In a thread, which nobody can interrupt: it says what it wants after somebody has cancelled the task."""
    store, loop = await app.store(), asyncio.get_running_loop()

    @app.task("T", max_attempts=5)
    def t(ctx: Context) -> Snooze:
        asked = store.apply(Commit(controls=[CancelRequest(ctx.task.id, "ann")]))
        asyncio.run_coroutine_threadsafe(asked, loop).result()
        if how == "snooze":
            return Snooze(30)
        raise ConnectionError("not now")

    task = await t.enqueue()
    health, lines = await lines_of(app)
    found = await app.get(task.id)
    assert found is not None and found.state is State.CANCELLED
    [line] = [line for line in lines if line["event"] in ("task.cancelled", "task.requeued", "task.failed")]
    assert line["event"] == "task.cancelled" and line.get("retry_in") is None
    assert ("error_code" in line, "note" in line) == (how == "retry", how == "retry")
    assert (health.cancelled, health.requeued, health.failed) == (1, 0, 0)
    went = await history(store, "1h")
    assert [sum(n or 0 for n in values) for values in (went.cancelled, went.retried)] == [1, 0]


async def test_a_requeue_that_met_nothing(app: App) -> None:
    @app.task("T", max_attempts=2)
    async def t(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("not now")

    await t.enqueue()
    health, lines = await lines_of(app, max_jobs=1)
    [line] = [line for line in lines if line["event"] in ("task.cancelled", "task.requeued", "task.failed")]
    assert line["event"] == "task.requeued" and line["retry_in"] > 0 and "note" not in line
    assert (health.cancelled, health.requeued, health.failed) == (0, 1, 0)
    went = await history(await app.store(), "1h")
    assert [sum(n or 0 for n in values) for values in (went.cancelled, went.retried)] == [0, 1]
