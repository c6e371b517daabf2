"""A worker that cannot begin handlers hands their tasks back, and takes no more than there is room for."""

from __future__ import annotations

import asyncio
import errno
import logging
import multiprocessing
import threading
from typing import Any

import pytest

from redrive import App, Context, State
from redrive.worker import attempts, lease, pools
from redrive.worker.readiness import readiness

from . import process_handlers
from .conftest import MakeApp, ended, until, working


class Limit:
    """Lets so many threads of handlers be started, and no more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.most, self.refused, start = most, 0, threading.Thread.start

        def limited(thread: threading.Thread) -> None:
            if thread.name.startswith("redrive-handler"):
                if self.most <= 0:
                    self.refused += 1
                    raise RuntimeError("can't start new thread")
                self.most -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", limited)


@pytest.fixture
def quick(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> App:
    monkeypatch.setattr(pools, "FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(pools, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(pools, "GROW_EVERY_S", 0.05)
    monkeypatch.setattr(lease, "STOP_GRACE_S", 0.05)
    return make_app(interval_ms=50)


@pytest.mark.parametrize("bulk", [None, 2], ids=["one", "bulk"])
async def test_tasks_that_could_not_begin_are_handed_back(
    quick: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, bulk: int | None
) -> None:
    def plain(_: Any) -> None: ...

    caplog.set_level(logging.INFO, "redrive.worker")
    quick.task("PLAIN", max_attempts=1, bulk=bulk)(plain)
    limit = Limit(monkeypatch, 0)
    tasks = await quick.enqueue_many([{"kind": "PLAIN"}] * 8)
    async with working(quick, concurrency=4) as worker:
        await until(lambda: limit.refused >= 3)
        assert (worker.health.failed, worker.health.completed) == (0, 0)
        assert "the worker cannot begin handlers: can't start new thread" in (await readiness(quick, worker))["reasons"]
        limit.most = 100
        for task in tasks:
            done = await ended(quick, task.id)
            assert (done.state, done.attempt_count) == (State.COMPLETED, 1)
        await until(lambda: worker.health.cramped is None)
        assert (worker.runs.slots, worker.runs.withheld) == (4, 0)
    said = [vars(record)["event"] for record in caplog.records if "room" in getattr(record, "event", "")]
    assert said == ["worker.no_room", "worker.room_again"]
    assert {record.levelno for record in caplog.records if "no_room" in getattr(record, "event", "")} == {logging.ERROR}


async def test_as_many_run_as_there_is_room_for(quick: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads are to be had: they do all of it, and what waits for a third costs a look now and then."""

    def plain(_: Context) -> None: ...

    quick.task("PLAIN", max_attempts=1)(plain)
    limit = Limit(monkeypatch, 2)
    tasks = await quick.enqueue_many([{"kind": "PLAIN"}] * 50)
    async with working(quick, concurrency=10) as worker:
        for task in tasks:
            assert (await ended(quick, task.id)).state is State.COMPLETED
        assert worker.health.failed == 0 and limit.refused < 200


async def test_a_process_that_could_not_be_started(quick: App, monkeypatch: pytest.MonkeyPatch) -> None:
    quick.task("QUICK", max_attempts=1, isolation="process")(process_handlers.quick)
    refused = 0
    context: Any = multiprocessing.get_context("spawn")
    start = context.Process.start

    def limited(process: Any) -> None:
        nonlocal refused
        refused += 1
        if refused <= 2:
            raise OSError(errno.EMFILE, "Too many open files")
        start(process)

    monkeypatch.setattr(context.Process, "start", limited)
    task = await quick.enqueue("QUICK")
    async with working(quick, concurrency=1):
        done = await ended(quick, task.id)
    assert (done.state, done.attempt_count, refused) == (State.COMPLETED, 1, 3)


async def test_handlers_that_were_given_up_take_slots_beyond_a_number(
    quick: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "FEWEST_STRAYS", 1)
    free = threading.Event()

    def deaf(_: Context) -> None:
        free.wait(30)

    def plain(_: Context) -> None: ...

    quick.task("DEAF", max_attempts=1, timeout=0.05)(deaf)
    quick.task("PLAIN")(plain)
    async with working(quick, concurrency=1) as worker:
        for _ in range(2):
            assert (await ended(quick, (await quick.enqueue("DEAF")).id)).state is State.FAILED
        task = await quick.enqueue("PLAIN")
        await until(lambda: not worker.runs)
        assert worker.runs.slots == 0
        assert any("given up" in reason for reason in (await readiness(quick, worker))["reasons"])
        free.set()
        assert (await ended(quick, task.id)).state is State.COMPLETED
        await asyncio.sleep(0)
        assert worker.runs.slots == 1
