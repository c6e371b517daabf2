"""Queues, order, limits of a worker process, cancellation, progress, transactions, schedules."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Context, Snooze, State
from redrive.errors import InvalidTransition
from redrive.ops import actions

from .conftest import drain, ended, run_task, task_of, until, working


async def test_queues_are_drained_in_order_and_priorities_hold_inside(app: App) -> None:
    order: list[str] = []

    @app.task("NOTE")
    async def note(ctx: Context, name: str) -> None:
        order.append(name)

    for queue, priority, name in [
        ("low", 0, "l1"),
        ("high", 5, "h-later"),
        ("high", -5, "h-first"),
        ("high", 5, "h-last"),
    ]:
        await note.options(queue=queue, priority=priority).enqueue(name=name)
    await drain(app, concurrency=1, queues=("high", "low"))
    assert order == ["h-first", "h-later", "h-last", "l1"]


async def test_once_runs_one_and_max_jobs_runs_that_many(app: App) -> None:
    @app.task("ONE")
    async def one(ctx: Context) -> None: ...

    await app.enqueue_many([("ONE", None)] * 6)
    worker = await drain(app, once=True, concurrency=4)
    assert worker.health.completed == 1
    worker = await drain(app, max_jobs=3, concurrency=2)
    assert worker.health.completed == 3


async def test_a_drain_runs_what_its_last_settlement_made_ready(app: App) -> None:
    ran: list[int] = []

    @app.task("STEP")
    async def step(ctx: Context) -> Snooze | None:
        ran.append(ctx.state or 0)
        return Snooze(0, state=ran[-1] + 1) if ran[-1] < 4 else None

    store: Any = await app.store()
    cycle = store.cycle

    async def blind(commit: Any, want: Any, *, again: bool = False) -> Any:
        """Claims nothing of what the same call settles, and of what was there before it: a claim may see so little."""
        return await cycle(commit, None if commit.transitions else want, again=again)

    store.cycle = blind
    store.listen = lambda *_: lambda: None
    await step.enqueue()
    await drain(app, concurrency=3)
    assert ran == [0, 1, 2, 3, 4]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("when_empty", [True, False])
async def test_what_runs_when_the_time_is_over_is_finished(app: App, when_empty: bool) -> None:
    @app.task("SLOW")
    async def slow(ctx: Context) -> None:
        await asyncio.sleep(2.0)

    tasks = [await slow.enqueue() for _ in range(3)]
    worker = await drain(app, concurrency=1, max_time=1.5, stop_when_empty=when_empty)
    assert (worker.health.claimed, worker.health.completed) == (1, 1)
    assert [(await app.get(task.id)).state for task in tasks] == [State.COMPLETED, State.QUEUED, State.QUEUED]  # type: ignore[union-attr]


async def test_once_without_work_ends(app: App) -> None:
    worker = await drain(app, once=True)
    assert worker.health.claimed == 0


async def test_tries_caps_attempts(app: App) -> None:
    @app.task("BROKEN", max_attempts=10)
    async def broken(ctx: Context) -> None:
        raise RuntimeError("no")

    task = await app.enqueue("BROKEN")
    async with working(app, tries=2):
        failed = await ended(app, task.id)
    assert (failed.state, failed.attempt_count) == (State.FAILED, 2)


async def test_a_timeout_ends_the_attempt(app: App) -> None:
    @app.task("SLOW", timeout=0.05, max_attempts=1)
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    failed = await run_task(app, "SLOW")
    assert (failed.error_reason, failed.failure_type) == ("timeout", "timeout")


async def test_cancelling_a_running_task_stops_its_handler(app: App) -> None:
    started = asyncio.Event()

    @app.task("LONG")
    async def long(ctx: Context) -> None:
        started.set()
        await asyncio.Event().wait()

    task = await app.enqueue("LONG")
    async with working(app):
        await asyncio.wait_for(started.wait(), 20)
        await app.cancel(task.id, actor="ann", reason="stop it")
        cancelled = await ended(app, task.id)
    assert cancelled.state is State.CANCELLED


async def test_cancelling_a_waiting_task_and_what_cannot_be_cancelled(app: App) -> None:
    @app.task("WAITING")
    async def waiting(ctx: Context) -> None: ...

    task = await waiting.options(delay=3600).enqueue()
    await app.cancel(task.id)
    found = await task_of(app, task.id)
    assert found.state is State.CANCELLED
    with pytest.raises(InvalidTransition, match="cancelled, not"):
        await app.cancel(task.id)


async def test_progress_is_seen_while_it_runs(app: App) -> None:
    go = asyncio.Event()

    @app.task("STEPS")
    async def steps(ctx: Context) -> None:
        ctx.progress(3, 10, "third")
        await go.wait()

    task = await app.enqueue("STEPS")

    async def shown() -> object:
        found = await app.get(task.id)
        return found and found.progress

    async with working(app):
        assert await until(shown) == {"done": 3, "total": 10, "note": "third"}
        go.set()
        await ended(app, task.id)


async def test_transaction_completes_with_the_handlers_writes(app: App, url: str) -> None:
    mark = "$1" if url.startswith("postgres") else "?"

    @app.task("BUY")
    async def buy(ctx: Context, item: str) -> None:
        transaction = ctx.transaction()
        async with transaction as tx:
            await tx.execute("create table if not exists bought (item text)")
            await tx.execute(f"insert into bought values ({mark})", item)
            transaction.result = {"bought": item}

    @app.task("BUY_BADLY", max_attempts=1)
    def buy_badly(ctx: Context, item: str) -> None:
        with ctx.transaction() as tx:
            tx.execute(f"insert into bought values ({mark})", item)
            raise RuntimeError("changed my mind")

    @app.task("COUNT")
    def count(ctx: Context) -> list[str]:
        transaction = ctx.transaction()
        with transaction as tx:
            transaction.result = [row["item"] for row in tx.fetch("select item from bought")]
        return ["ignored: the transaction already completed the task"]

    good = await app.enqueue("BUY", {"item": "tea"})
    await drain(app)
    bad = await app.enqueue("BUY_BADLY", {"item": "sugar"})
    await drain(app)
    counted = await app.enqueue("COUNT")
    await drain(app)
    found = [await app.get(task.id) for task in (good, bad, counted)]
    assert [(t.state, t.result) for t in found if t] == [
        (State.COMPLETED, {"bought": "tea"}),
        (State.FAILED, None),
        (State.COMPLETED, ["tea"]),
    ]


async def test_delayed_tasks_run_when_due_without_polling(app: App) -> None:
    @app.task("LATER")
    async def later(ctx: Context) -> None: ...

    async with working(app):
        delayed = await later.options(delay=0.05).enqueue()
        planned = await later.options(run_at=datetime.now(UTC) + timedelta(seconds=0.05)).enqueue()
        assert (await ended(app, delayed.id)).state is State.COMPLETED
        assert (await ended(app, planned.id)).state is State.COMPLETED


async def test_a_quota_holds_and_a_freed_place_is_taken_at_once(app: App) -> None:
    most = now = 0

    @app.task("NARROW", concurrency=1)
    async def narrow(ctx: Context) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    tasks = await app.enqueue_many([("NARROW", None)] * 20)
    async with working(app):
        for task in tasks:
            await ended(app, task.id)
    assert most == 1


async def test_pausing_a_queue_and_resuming_it(app: App) -> None:
    @app.task("HELD", queue="held")
    async def held(ctx: Context) -> None: ...

    store = await app.store()
    assert await actions.hold(store, "queue", "held", actor="ann", reason="deploy")
    task = await app.enqueue("HELD")
    worker = await drain(app, queues=("held",))
    assert worker.health.claimed == 0
    assert await actions.hold(store, "queue", "held", actor="ann", on=False)
    await drain(app, queues=("held",))
    found = await task_of(app, task.id)
    assert found.state is State.COMPLETED


async def test_schedules_are_declared_and_fire_once(app: App) -> None:
    ran: list[object] = []

    @app.task("TICK")
    async def tick(ctx: Context) -> None:
        ran.append(ctx.task_id)

    app.periodic("TICK", cron="* * * * *", name="every-minute")
    await drain(app)
    store = await app.store()
    [schedule] = (await store.overview()).schedules
    assert (schedule.name, schedule.kind) == ("every-minute", "TICK")
    assert schedule.next_at > (await store.overview()).now
    assert ran == []
