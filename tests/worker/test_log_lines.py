"""Which lines of tasks are written; they and the counters say what became of a task, not what its attempt asked for."""

from __future__ import annotations

import asyncio
import io
import json
from collections import defaultdict
from typing import Any

import pytest

from redrive import App, Context, Snooze, State
from redrive.app.workers import _task_log
from redrive.kernel.commit import CancelRequest, Commit
from redrive.observe.logs import TaskLog
from redrive.ops.history import history
from redrive.settings import Options

from .conftest import task_of


async def events(app: App, log: TaskLog, stream: io.StringIO) -> dict[str, list[str]]:
    """Runs until nothing is left; returns the events of each task."""
    chosen = Options(concurrency=5, stop_when_empty=True)
    await asyncio.wait_for(app.worker(await app.store(), chosen, log=log).run(), 60)
    found = defaultdict[str, list[str]](list)
    for line in map(json.loads, stream.getvalue().splitlines()):
        if "task_id" in line:
            found[line["task_id"]].append(line["event"])
    return found


def declare(app: App) -> None:
    @app.task("GOOD")
    async def good(ctx: Context) -> None: ...

    @app.task("BAD", max_attempts=1)
    async def bad(ctx: Context) -> None:
        raise ConnectionError("not now")


async def test_a_sample_has_both_lines_of_a_task_or_none_and_every_failure(app: App) -> None:
    declare(app)
    good = [str(task.id) for task in await app.enqueue_many([("GOOD", None)] * 60)]
    bad = [str(task.id) for task in await app.enqueue_many([("BAD", None)] * 20)]
    stream = io.StringIO()
    found = await events(app, TaskLog(stream, sample=4), stream)
    told = [task_id for task_id in good if found[task_id]]
    assert 0 < len(told) < 45, "a quarter of sixty, by their ids"
    assert all(found[task_id] == ["task.claimed", "task.completed"] for task_id in told)
    assert all("task.failed" in found[task_id] for task_id in bad)
    assert {len(found[task_id]) for task_id in bad} == {1, 2}


async def test_the_least_level_that_is_written(app: App) -> None:
    declare(app)
    await app.enqueue_many([("GOOD", None)] * 3)
    [bad] = await app.enqueue_many([("BAD", None)])
    stream = io.StringIO()
    found = await events(app, TaskLog(stream, level="error"), stream)
    assert found == {str(bad.id): ["task.failed"]}
    assert {json.loads(line)["level"] for line in stream.getvalue().splitlines()} == {"error"}


async def test_the_settings_are_the_workers(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_LOG", "json")
    monkeypatch.setenv("REDRIVE_LOG_SAMPLE", "1000000")
    monkeypatch.setenv("REDRIVE_LOG_LEVEL", "warning")
    chosen = _task_log(App(app.url).settings)
    assert (chosen._sample, chosen._least) == (1_000_000, 1)


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
    found = await task_of(app, task.id)
    assert found.state is State.CANCELLED
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
