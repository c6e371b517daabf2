"""A handler that is told to stop, and what its return means then: half-done work is never completed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from redrive import App, Bulk, Context, Done, Fail, Snooze, State, StopReason, Task
from redrive.settings import Options
from redrive.worker.worker import Worker

from .conftest import MakeApp, ended, until, working

FAST = {"interval_ms": 50, "grace_ms": 100}
# What becomes of a stopped attempt, by why it was stopped: state, attempts used, reason of the failure.
SETTLED = {
    StopReason.TIMEOUT: (State.FAILED, 1, "timeout"),
    StopReason.CANCELLED: (State.CANCELLED, 1, None),
    StopReason.SHUTDOWN: (State.QUEUED, 0, None),
}
COMPLETED = (State.COMPLETED, 1, None)


@pytest.fixture
def quick(make_app: MakeApp) -> App:
    return make_app(**FAST)


def outcome(task: Task) -> tuple[State, int, str | None]:
    return task.state, task.attempt_count, task.error_reason


async def stopped(
    app: App, why: StopReason, begun: Callable[[], Any], *, kind: str = "T", count: int = 1, then: Any = None
) -> list[Task]:
    """Enqueue, wait until the handler has begun, stop it for this reason, and see what became of the tasks.
    ``then`` is called when the handlers have been told, or a shutdown's grace is over."""
    timeout = 0.3 if why is StopReason.TIMEOUT else None
    given = [{"kind": kind, "max_attempts": 1, "timeout": timeout}] * count
    tasks = await app.enqueue_many(given)
    async with _worker(app) as worker:
        await until(lambda: begun())
        if why is StopReason.CANCELLED:
            for task in tasks:
                await app.cancel(task.id, actor="ann")
        elif why is StopReason.SHUTDOWN:
            worker.stop()
        await until(lambda: all(run.stop is why for run in worker.runs.values()))
        if then is not None:
            then()
        if why is not StopReason.SHUTDOWN:
            return [await ended(app, task.id) for task in tasks]
    return [await _get(app, task.id) for task in tasks]


@asynccontextmanager
async def _worker(app: App) -> AsyncIterator[Worker]:
    worker = app.worker(await app.store(), Options(concurrency=5, sleep=60.0))
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 60)


async def _get(app: App, task_id: UUID) -> Task:
    found = await app.get(task_id)
    assert found is not None
    return found


# -- a return after being told is a stop ------------------------------------------------------------------------------


@pytest.mark.parametrize(("why", "how"), zip(SETTLED, ["cancelled", "stop_reason", "cancelled"], strict=True))
async def test_a_thread_that_looked_and_returned_has_stopped(quick: App, why: StopReason, how: str) -> None:
    seen: list[Any] = []

    @quick.task("T")
    def t(ctx: Context) -> str:
        seen.append(None)
        while not getattr(ctx, how):
            threading.Event().wait(0.01)
        seen.append(ctx.stop_reason)
        return "half of it"

    [task] = await stopped(quick, why, lambda: seen)
    assert outcome(task) == SETTLED[why]
    assert task.result is None and seen == [None, why]


@pytest.mark.parametrize("why", SETTLED)
async def test_a_coroutine_that_swallows_its_cancellation_has_stopped(quick: App, why: StopReason) -> None:
    seen: list[int] = []

    @quick.task("T")
    async def t(ctx: Context) -> str:
        seen.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # cleans up
        return "half of it"

    [task] = await stopped(quick, why, lambda: seen)
    assert outcome(task) == SETTLED[why]


@pytest.mark.parametrize("why", SETTLED)
async def test_an_exception_after_being_told_is_a_stop(quick: App, why: StopReason) -> None:
    seen: list[int] = []

    @quick.task("T")
    def t(ctx: Context) -> None:
        seen.append(1)
        while not ctx.cancelled:
            threading.Event().wait(0.01)
        raise KeyboardInterrupt

    [task] = await stopped(quick, why, lambda: seen)
    assert outcome(task) == SETTLED[why]


# -- who was not told has completed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("why", SETTLED)
async def test_a_thread_that_never_looked_has_completed(quick: App, why: StopReason) -> None:
    """Handing it back would repeat its effects with every deploy."""
    seen, release = list[int](), threading.Event()

    @quick.task("T")
    def t(ctx: Context) -> str:
        assert not ctx.cancelled  # looked too early: nobody had asked it to stop
        seen.append(1)
        release.wait(20)
        return "all of it"

    [task] = await stopped(quick, why, lambda: seen, then=release.set)
    assert outcome(task) == COMPLETED and task.result == "all of it"


async def test_an_exception_of_who_was_not_told_is_its_own(quick: App) -> None:
    seen, release = list[int](), threading.Event()

    @quick.task("T")
    def t(ctx: Context) -> str:
        seen.append(1)
        release.wait(20)
        raise ConnectionError("the service is gone")

    [task] = await stopped(quick, StopReason.SHUTDOWN, lambda: seen, then=release.set)
    assert outcome(task) == (State.FAILED, 1, "connect")


@pytest.mark.parametrize("why", SETTLED)
async def test_a_completed_transaction_stays_completed(quick: App, why: StopReason) -> None:
    seen: list[Any] = []

    @quick.task("T")
    async def t(ctx: Context) -> str:
        try:
            seen.append(1)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            async with ctx.transaction():
                pass
        return "late"

    [task] = await stopped(quick, why, lambda: seen)
    assert outcome(task) == COMPLETED


# -- who finished anyway says so --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "form"),
    [
        (StopReason.TIMEOUT, "done"),
        (StopReason.CANCELLED, "return ctx.done"),
        (StopReason.SHUTDOWN, "return Done"),
        (StopReason.SHUTDOWN, "raise Done"),
        (StopReason.TIMEOUT, "done, then it breaks"),
    ],
)
async def test_done_completes_whoever_asked_to_stop(quick: App, why: StopReason, form: str) -> None:
    seen: list[int] = []

    @quick.task("T")
    def t(ctx: Context) -> Any:
        seen.append(1)
        while not ctx.cancelled:
            threading.Event().wait(0.01)
        match form:
            case "done":
                ctx.done()
                return {"n": 3}
            case "return ctx.done":
                return ctx.done({"n": 3})
            case "return Done":
                return Done({"n": 3})
            case "raise Done":
                raise Done({"n": 3})
        ctx.done({"n": 3})
        raise RuntimeError("while it cleaned up")

    [task] = await stopped(quick, why, lambda: seen)
    assert outcome(task) == COMPLETED and task.result == {"n": 3}


async def test_done_without_a_stop_changes_nothing(app: App) -> None:
    @app.task("VALUE")
    async def value(ctx: Context) -> Any:
        ctx.done("earlier")
        return "later"

    @app.task("BROKEN", max_attempts=1)
    async def broken(ctx: Context) -> Any:
        ctx.done("earlier")
        raise ValueError("after all")

    tasks = await app.enqueue_many([("VALUE", None), ("BROKEN", None)])
    async with working(app):
        found = [await ended(app, task.id) for task in tasks]
    assert [(task.state, task.result) for task in found] == [(State.COMPLETED, "later"), (State.FAILED, None)]


@pytest.mark.parametrize("why", SETTLED)
async def test_a_verdict_counts_also_after_a_stop(quick: App, why: StopReason) -> None:
    """Snooze with a state is how a long loop keeps its place; what an operator cancelled stays cancelled."""
    seen: list[int] = []

    @quick.task("T")
    async def t(ctx: Context) -> Any:
        seen.append(1)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if why is StopReason.SHUTDOWN:
                return Snooze(3600, state={"page": 7})
            raise Fail("GIVEN_UP", "half-way") from None

    [task] = await stopped(quick, why, lambda: seen)
    if why is StopReason.SHUTDOWN:
        assert (task.state, task.attempt_count, task.memo) == (State.DELAYED, 0, {"page": 7})
    else:
        assert (task.state, task.error_code) == (State.FAILED, "GIVEN_UP")


# -- bulk -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("why", SETTLED)
async def test_items_without_an_answer_are_stopped_and_answered_ones_count(quick: App, why: StopReason) -> None:
    seen: list[int] = []

    @quick.task("B", bulk=3)
    def b(items: Bulk) -> None:
        items[0].answer("all of it")
        seen.append(len(items))
        while not items.cancelled:
            threading.Event().wait(0.01)

    tasks = await stopped(quick, why, lambda: seen, kind="B", count=3)
    assert [outcome(task) for task in tasks] == [COMPLETED, SETTLED[why], SETTLED[why]]


async def test_looking_at_a_call_of_which_one_is_cancelled_tells_nobody(quick: App) -> None:
    seen, release = list[int](), threading.Event()

    @quick.task("B", bulk=2)
    def b(items: Bulk) -> None:
        seen.append(len(items))
        while not release.is_set():
            assert not items.cancelled
            threading.Event().wait(0.01)
        assert not items.cancelled

    tasks = await quick.enqueue_many([("B", None)] * 2)
    async with _worker(quick) as worker:
        await until(lambda: seen)
        await quick.cancel(tasks[0].id, actor="ann")
        await until(lambda: any(run.stop for run in worker.runs.values()))
        release.set()
        found = [await ended(quick, task.id) for task in tasks]
    assert [outcome(task) for task in found] == [COMPLETED, COMPLETED]


async def test_a_decorated_coroutine_is_interrupted_like_any_other(quick: App) -> None:
    """It begins in a thread and goes on on the loop."""
    seen: list[int] = []

    async def body(ctx: Context) -> None:
        seen.append(1)
        await asyncio.sleep(60)

    def wrapper(ctx: Context) -> Any:
        return body(ctx)

    quick.task("T")(wrapper)
    [task] = await stopped(quick, StopReason.SHUTDOWN, lambda: seen)
    assert outcome(task) == SETTLED[StopReason.SHUTDOWN]
