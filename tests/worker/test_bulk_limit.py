"""A worker does not gather tasks of a bulk kind in its memory that its handler is too slow for, and leaves slots free
for other queues meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from redrive import App, Bulk, Context
from redrive.worker import bulk

SLOTS, SIZE, MOST = 10, 5, 20


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_slow_bulk_kind_fills_neither_memory_nor_slots(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_IN_CALLS", MOST)
    app = App(f"sqlite:///{tmp_path}/redrive.db")
    go_on, ran, other = asyncio.Event(), 0, 0

    @app.task("SLOW", bulk=SIZE, queue="slow")
    async def slow(bulk: Bulk) -> None:
        nonlocal ran
        await go_on.wait()
        ran += len(bulk)

    @app.task("OTHER")
    async def quick(ctx: Context) -> None:
        nonlocal other
        other += 1

    await app.migrate()
    await app.enqueue_many([("SLOW", {})] * 100)
    worker = app.worker(stop_when_empty=True, concurrency=SLOTS)
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: len(worker.runs) >= MOST)
        for n in range(1, 4):  # each of these needs a claim, which leaves the slow queue alone
            await app.enqueue("OTHER")
            await until(lambda n=n: other == n)
        assert MOST <= len(worker.runs) <= MOST + SLOTS and worker.runs.slots > 0
        go_on.set()
        await asyncio.wait_for(running, 60)
    finally:
        running.cancel()
    assert ran == 100
    await app.close()


async def test_a_worker_of_such_a_queue_alone_goes_on_when_a_call_has_ended(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "MOST_IN_CALLS", MOST)
    app = App(f"sqlite:///{tmp_path}/redrive.db")
    ended = asyncio.Semaphore(0)
    most = ran = 0

    @app.task("SLOW", bulk=SIZE, queue="slow")
    async def slow(bulk: Bulk) -> None:
        nonlocal most, ran
        await ended.acquire()
        most, ran = max(most, len(worker.runs)), ran + len(bulk)

    await app.migrate()
    await app.enqueue_many([("SLOW", {})] * 100)
    worker = app.worker(queues=["slow"], concurrency=SLOTS, sleep=3600)  # nothing but the end of a call makes it look
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: len(worker.runs) >= MOST)
        while ran < 100:
            before = ran
            ended.release()
            await until(lambda before=before: ran > before)
        assert most <= MOST + 2 * SLOTS
    finally:
        worker.stop()
        await running
    await app.close()
