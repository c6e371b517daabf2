"""Handlers that harm others are named: one that holds the event loop, one that runs on after it was given up."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from redrive import App, Context, State
from redrive.kernel.handler_notes import BLOCKED_COLLECTION, STRAY_COLLECTION
from redrive.ops import doctor, inspect
from redrive.ops.why import why
from redrive.worker import lease, loop_watch
from redrive.worker.loop_watch import LoopWatch

from .conftest import MakeApp, ended, until, working


@pytest.fixture
def quick(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setattr(loop_watch, "ASK_EVERY_S", 0.01)
    monkeypatch.setattr(loop_watch, "HELD_AFTER_S", 0.1)
    monkeypatch.setattr(lease, "STOP_GRACE_S", 0.1)
    return make_app(interval_ms=50)


def said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if getattr(record, "event", "") == "worker.loop_blocked"]


async def told(app: App, task_id: Any) -> list[tuple[str, str]]:
    task = await app.get(task_id)
    assert task is not None
    return [(reason.code, reason.text) for reason in await why(await app.store(), task)]


async def findings(app: App) -> dict[str, str]:
    return {one.code: f"{one.text} {one.fix}" for one in await doctor.examine(await app.store())}


@pytest.mark.parametrize("bulk", [None, 2], ids=["one", "bulk"])
async def test_who_holds_the_event_loop_is_named(
    quick: App, caplog: pytest.LogCaptureFixture, bulk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the loop until that was noticed: nothing that is asked of the loop could say so."""
    noticed = threading.Event()
    monkeypatch.setattr(loop_watch, "STILL_AFTER_S", 0.11)
    say = LoopWatch._say

    def notices(*given: Any) -> None:
        say(*given)
        noticed.set()

    monkeypatch.setattr(LoopWatch, "_say", notices)

    async def holds(_: Any) -> None:
        assert noticed.wait(20)
        time.sleep(0.05)

    quick.task("HOLDS", bulk=bulk, timeout=0.05)(holds)
    store = await quick.store()
    async with working(quick) as worker:
        task = await quick.enqueue("HOLDS")
        assert (await ended(quick, task.id)).state is State.COMPLETED
        await until(lambda: store.records(BLOCKED_COLLECTION, limit=1))
        found = await findings(quick)
        assert worker.health.loop_blocked == 1
    first, last = said(caplog)
    for record in (first, last):
        assert (record.levelname, vars(record)["task_id"], vars(record)["kind"]) == ("WARNING", str(task.id), "HOLDS")
        assert "test_harmful_handlers.py" in vars(record)["where"] and "in holds" in vars(record)["where"]
    assert "past its timeout of 0.05 s" in last.getMessage() and 'isolation="process"' in last.getMessage()
    [(code, text)] = await told(quick, task.id)
    assert code == "loop_blocked" and "past its timeout of 0.05 s" in text
    assert f"HOLDS {task.id} held the event loop of worker {worker.id}" in found["loop_blocked"]


async def test_a_loop_that_waits_is_held_by_nobody() -> None:
    """As after the whole process was stopped: no answer in time, and nothing runs."""
    loop, ident = asyncio.get_running_loop(), threading.get_ident()
    assert loop_watch._holder(loop, ident) is not None

    def look() -> Any:
        time.sleep(0.05)
        return loop_watch._holder(loop, ident)

    assert await asyncio.to_thread(look) is None


async def test_many_blocks_of_a_kind_are_one_small_document(quick: App) -> None:
    async def holds(_: Context) -> None:
        time.sleep(0.2)

    quick.task("HOLDS")(holds)
    store = await quick.store()
    async with working(quick, concurrency=1) as worker:
        await quick.enqueue_many([{"kind": "HOLDS"}] * 3)
        await until(lambda: _at_least(worker.health.loop_blocked, 2))
        await until(lambda: not worker.report._notes._blocks)
    [record] = await store.records(BLOCKED_COLLECTION, limit=10)
    assert record.id == "HOLDS" and len(record.body["blocks"]) >= 2


async def test_a_handler_that_runs_on_is_told_until_it_ends(quick: App) -> None:
    begun, free = threading.Event(), threading.Event()

    def deaf(_: Context) -> None:
        begun.set()
        free.wait(30)

    quick.task("DEAF", max_attempts=1)(deaf)
    store = await quick.store()
    task = await quick.enqueue("DEAF")
    async with working(quick) as worker:
        await until(lambda: begun.is_set())
        await quick.cancel(task.id, actor="ann")
        assert (await ended(quick, task.id)).state is State.CANCELLED
        await until(lambda: store.records(STRAY_COLLECTION, states=(str(task.id),), limit=1))
        [(code, text)] = await told(quick, task.id)
        assert code == "handler_runs_on" and f"still runs in worker {worker.id}" in text
        assert 'isolation="process"' in text
        assert f"the handler of DEAF {task.id} still runs" in (await findings(quick))["handler_runs_on"]
        [stray] = (await inspect.stats(store)).strays
        assert (stray.task_id, stray.kind, stray.isolation) == (str(task.id), "DEAF", "thread")
        free.set()
        await until(lambda: _gone(store))
        assert await told(quick, task.id) == []


async def test_a_handler_that_runs_on_is_not_told_of_a_worker_that_is_gone(quick: App) -> None:
    begun, free = threading.Event(), threading.Event()

    def deaf(_: Context) -> None:
        begun.set()
        free.wait(30)

    quick.task("DEAF", max_attempts=1, timeout=0.05)(deaf)
    store = await quick.store()
    task = await quick.enqueue("DEAF")
    async with working(quick):
        await until(lambda: store.records(STRAY_COLLECTION, states=(str(task.id),), limit=1))
    free.set()
    assert [code for code, _ in await told(quick, task.id)] == ["failed"]


async def _gone(store: Any) -> bool:
    return not (await inspect.stats(store)).strays


async def _at_least(value: int, least: int) -> bool:
    return value >= least
