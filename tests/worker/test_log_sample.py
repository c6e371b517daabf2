"""Which lines of tasks are written: a sample of what is usual, and all of what went wrong."""

from __future__ import annotations

import asyncio
import io
import json
from collections import defaultdict

import pytest

from redrive import App, Context
from redrive.app.workers import _task_log
from redrive.observe.logs import TaskLog
from redrive.settings import Options

pytestmark = pytest.mark.anyio


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
