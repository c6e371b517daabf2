"""Attempts that share a task as long as they do not wait, and never notice."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

from redrive.worker.carriers import Carriers

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Stage:
    """Carriers over plain functions, with what became of them."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.broken: list[tuple[Any, BaseException]] = []
        self.carriers = Carriers(self._attempt, lambda run, error: self.broken.append((run.name, error)))

    async def _attempt(self, run: Any) -> None:
        try:
            self.done.append((run.name, await run.work()))
        except asyncio.CancelledError:
            self.done.append((run.name, "cancelled"))

    def add(self, name: Any, work: Callable[[], Awaitable[Any]]) -> Any:
        run: Any = SimpleNamespace(name=name, work=work, future=None)
        self.carriers.add(run)
        return run

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.done) < count:
                await asyncio.sleep(0)


async def test_what_never_waits_runs_in_order_in_one_task() -> None:
    stage, tasks = Stage(), set()

    async def work() -> None:
        tasks.add(asyncio.current_task())

    for n in range(50):
        stage.add(n, work)
    await stage.until(50)
    assert [name for name, _ in stage.done] == list(range(50))
    assert len(tasks) == 1


async def test_who_waits_holds_up_nobody_and_is_alone_in_its_task() -> None:
    stage, gate, tasks = Stage(), asyncio.Event(), []

    async def waits() -> None:
        mine = asyncio.current_task()
        tasks.append(mine)
        await gate.wait()
        assert asyncio.current_task() is mine

    async def quick() -> str:
        return "quick"

    for n in range(10):
        stage.add(f"wait {n}", waits)
        stage.add(f"quick {n}", quick)
    await stage.until(10)
    assert all(result == "quick" for _, result in stage.done)
    assert len(set(tasks)) == 10
    gate.set()
    await stage.until(20)


async def test_each_has_a_context_of_its_own() -> None:
    stage, seen = Stage(), []

    async def sets() -> None:
        seen.append(variable.get())
        variable.set("mine")
        await asyncio.sleep(0)
        assert variable.get() == "mine"

    async def sets_at_once() -> None:
        seen.append(variable.get())
        variable.set("theirs")

    for n in range(4):
        stage.add(n, sets if n % 2 else sets_at_once)
    await stage.until(4)
    assert seen == ["unset"] * 4 and variable.get() == "unset"


async def test_a_cancellation_reaches_one_attempt_only() -> None:
    stage = Stage()

    async def forever() -> None:
        await asyncio.sleep(3600)

    async def quick() -> str:
        return "quick"

    stage.add("before", quick)
    victim = stage.add("victim", forever)
    other = stage.add("other", forever)
    stage.add("after", quick)
    await stage.until(2)
    victim.future.cancel()
    await stage.until(3)
    assert stage.done[-1] == ("victim", "cancelled") and not other.future.done()
    other.future.cancel()
    await stage.until(4)


async def test_who_cancels_itself_does_not_harm_the_next() -> None:
    stage = Stage()

    async def suicidal() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "returned"

    async def waits() -> str:
        await asyncio.sleep(0.01)
        return "slept"

    stage.add("suicidal", suicidal)
    stage.add("next", waits)
    await stage.until(2)
    assert stage.done == [("suicidal", "returned"), ("next", "slept")]


async def test_a_carrier_that_is_cancelled_before_its_turn_is_replaced() -> None:
    stage = Stage()

    async def quick() -> str:
        return "quick"

    before = asyncio.all_tasks()
    stage.add("one", quick)
    (carrier,) = asyncio.all_tasks() - before
    carrier.cancel()
    await stage.until(1)
    assert stage.done == [("one", "quick")]


async def test_what_breaks_outside_of_an_attempt_is_told_and_stops_nobody() -> None:
    stage = Stage()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def bad() -> None:
        raise ValueError("bad")

    async def quick() -> str:
        return "quick"

    stage.add("bad", bad)
    stage.add("good", quick)
    await stage.until(1)
    assert stage.done == [("good", "quick")]
    assert [(name, type(error)) for name, error in stage.broken] == [("bad", ValueError)]


async def test_others_get_their_turn_between_busy_attempts() -> None:
    stage, turns = Stage(), 0

    async def busy() -> None:
        time.sleep(0.004)

    async def bystander() -> None:
        nonlocal turns
        while len(stage.done) < 30:
            turns += 1
            await asyncio.sleep(0)

    for n in range(30):
        stage.add(n, busy)
    await bystander()
    assert turns >= 5
