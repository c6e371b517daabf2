"""A task that comes back to the worker that already runs it, hints that meet a call, and calls that are filled up."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive import App, Bulk, Context, Snooze, State, StopReason
from redrive.errors import LeaseLost, StoreError
from redrive.kernel.ports.store import Wake
from redrive.settings import Options
from redrive.worker.worker import Worker

from .conftest import MakeApp, drain, ended, until, working


async def expire(url: str) -> None:
    """Every lease has run out, as after a long pause of the whole process."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)) as database:
            database.execute("update redrive_task set lease_expires_at = 1 where state = 'running'")
            database.commit()
        return
    connection = await asyncpg.connect(url)
    await connection.execute(
        "update redrive.task set lease_expires_at = now() - interval '1 s' where state = 'running'"
    )
    await connection.close()


@pytest.fixture
def quick(make_app: MakeApp) -> App:
    return make_app(interval_ms=100)


async def test_the_older_attempt_is_told_to_stop_and_the_newer_one_stays(quick: App, url: str) -> None:
    begun: list[Context] = []

    @quick.task("T")
    async def t(ctx: Context) -> str:
        begun.append(ctx)
        for _ in range(2000):
            if ctx.cancelled or (ctx.attempt == 2 and released.is_set()):
                break
            await asyncio.sleep(0.01)
        return f"attempt {ctx.attempt}"

    released = asyncio.Event()
    task = await t.enqueue()
    async with working(quick) as worker:
        await until(lambda: begun)
        await expire(url)
        await until(lambda: len(begun) == 2 and begun[0].cancelled)
        await until(lambda: not worker.runs.superseded)
        # The end of the older one took nothing of the newer one with it.
        assert worker.runs[task.id].context is begun[1] and worker.runs.slots == 4
        released.set()
        found = await ended(quick, task.id)
        assert (found.state, found.result, found.attempt_count) == (State.COMPLETED, "attempt 2", 2)
        await until(lambda: worker.runs.slots == 5)


async def test_an_older_attempt_cannot_commit_as_the_newer_one(quick: App, url: str) -> None:
    refused: list[BaseException] = []
    second = threading.Event()

    @quick.task("T")
    def t(ctx: Context) -> None:
        if ctx.attempt == 2:
            second.set()
            release.wait(10)
            return
        second.wait(10)
        try:
            with ctx.transaction():
                pass
        except LeaseLost as error:
            refused.append(error)

    release = threading.Event()
    task = await t.enqueue()
    async with working(quick) as worker:
        await until(lambda: worker.runs)
        await expire(url)
        await until(lambda: refused)
        assert (await quick.get(task.id)).state is State.RUNNING  # type: ignore[union-attr]
        release.set()
        assert (await ended(quick, task.id)).attempt_count == 2


async def test_an_older_attempt_that_does_not_stop_gives_its_slot_back(
    quick: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.worker.lease.STOP_GRACE_S", 0.3)
    release = threading.Event()

    @quick.task("T")
    def t(ctx: Context) -> None:
        if ctx.attempt == 1:
            release.wait(30)

    task = await t.enqueue()
    async with working(quick) as worker:
        await until(lambda: worker.runs)
        await expire(url)
        assert (await ended(quick, task.id)).attempt_count == 2
        await until(lambda: worker.runs.slots == 5)
        release.set()


async def test_a_hint_that_arrives_during_a_call_is_not_forgotten(app: App) -> None:
    @app.task("T")
    async def t(ctx: Context) -> None: ...

    store: Any = await app.store()
    original, answered = store.cycle, asyncio.Event()

    async def cycle(commit: Any, want: Any, *, again: bool = False) -> Any:
        answer = await original(commit, want, again=again)
        if want is not None and not answered.is_set():
            answered.set()
            worker.state.signal.look()  # what the hint is about was committed after this call had looked
            await asyncio.sleep(0.05)
        return answer

    store.cycle = cycle
    worker = app.worker(store, Options(sleep=60.0))
    running = asyncio.create_task(worker.run())
    await answered.wait()
    task = await app.enqueue("T")
    assert (await ended(app, task.id)).state is State.COMPLETED
    worker.stop()
    await running


async def test_hints_about_other_queues_are_not_for_this_worker(app: App) -> None:
    worker = app.worker(await app.store(), Options(queues=("mine",)))
    worker.state.signal.to_look = False
    for wake in (Wake(queue="other"), Wake(queue="other", due_in=0.0)):
        worker.on_wake(wake)
    assert not worker.state.signal.to_look and worker.ticker._expected == float("inf")
    worker.on_wake(Wake(queue="mine", due_in=1.0))
    assert worker.ticker._expected < float("inf")
    for wake in (Wake(queue="mine"), Wake(queue="*"), Wake()):
        worker.state.signal.to_look = False
        worker.on_wake(wake)
        assert worker.state.signal.to_look


# -- filling up a bulk call --------------------------------------------------------------------------------------------


def _fill_up(store: Any, trouble: Any) -> None:
    original = store.cycle

    async def cycle(commit: Any, want: Any, *, again: bool = False) -> Any:
        if want is not None and want.only is not None:
            await trouble()
        return await original(commit, want, again=again)

    store.cycle = cycle


async def test_a_call_that_cannot_be_filled_up_goes_out_as_it_is(app: App) -> None:
    sizes: list[int] = []

    @app.task("B", bulk=10)
    async def b(items: Bulk) -> None:
        sizes.append(len(items))

    async def refuse() -> None:
        raise StoreError("no")

    _fill_up(await app.store(), refuse)
    await app.enqueue_many([("B", None)] * 3)
    worker = await drain(app, concurrency=2)
    assert sum(sizes) == worker.health.completed == 3 and worker.runs.slots == 2


async def test_a_task_that_was_stopped_while_its_call_was_filled_up_is_not_run(app: App) -> None:
    ran: list[int] = []

    @app.task("B", bulk=10)
    async def b(items: Bulk) -> None:
        ran.append(len(items))

    filling, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        filling.set()
        await go_on.wait()

    _fill_up(await app.store(), wait)
    task = await app.enqueue("B")
    async with working(app) as worker:
        await filling.wait()
        for run in worker.runs.values():
            run.ask_to_stop(StopReason.CANCELLED)
        go_on.set()
        assert (await ended(app, task.id)).state is State.CANCELLED
        await until(lambda: worker.runs.slots == 5)
    assert not ran


async def test_filling_up_keeps_to_max_jobs_and_holds_up_nobody(app: App) -> None:
    done: list[str] = []

    @app.task("B", bulk=10)
    async def b(items: Bulk) -> None:
        done.extend("B" for _ in items)

    @app.task("K")
    async def k(ctx: Context) -> None:
        done.append("K")

    go_on = asyncio.Event()
    _fill_up(await app.store(), go_on.wait)
    await app.enqueue_many([("B", None)] * 2 + [("K", None)] * 2 + [("B", None)] * 8)
    worker: Worker = app.worker(await app.store(), Options(concurrency=4, max_jobs=7))
    running = asyncio.create_task(worker.run())
    await until(lambda: done == ["K", "K"])  # while the call of the others is being filled up
    go_on.set()
    await asyncio.wait_for(running, 60)
    assert len(done) <= 7


async def test_a_task_that_snoozes_into_the_next_call_keeps_its_run(app: App) -> None:
    seen: dict[UUID, int] = {}

    @app.task("B", bulk=5)
    async def b(items: Bulk) -> list[Any]:
        for item in items:
            seen[item.id] = seen.get(item.id, 0) + 1
        return [Snooze(0) if seen[item.id] < 4 else None for item in items]

    tasks = await app.enqueue_many([("B", None)] * 40)
    worker = await drain(app, concurrency=6)
    found = [await app.get(task.id) for task in tasks]
    assert {(task.state, task.attempt_count) for task in found if task} == {(State.COMPLETED, 1)}
    assert worker.health.lost == 0 and worker.runs.slots == 6 and not worker.runs
