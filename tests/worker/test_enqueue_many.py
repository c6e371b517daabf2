"""Long lists: the first tasks are sent while the next are made, and still all of them are enqueued or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from redrive import App, Context, State
from redrive.errors import IdempotencyConflict, InvalidInput, PayloadInvalid
from redrive.handlers import new_task
from redrive.stores.postgres import codec
from redrive.stores.postgres.enqueue import TASKS_PER_PART
from tests.proxy import Proxy
from tests.worker.conftest import drain

COUNT = 4 * TASKS_PER_PART + 7


async def waiting(app: App) -> int:
    return sum(count.n for count in await (await app.store()).counts() if count.state is State.QUEUED)


def declare(app: App) -> None:
    @app.task("COUNTED")
    async def counted(ctx: Context, n: int) -> None: ...


async def test_a_long_list_is_enqueued_in_its_order(app: App) -> None:
    ran: list[int] = []

    @app.task("COUNTED")
    async def counted(ctx: Context, n: int) -> None:
        ran.append(n)

    tasks = await app.enqueue_many([("COUNTED", {"n": n}) for n in range(COUNT)])
    assert [task.payload for task in tasks] == [{"n": n} for n in range(COUNT)]
    assert len({task.id for task in tasks}) == COUNT == await waiting(app)
    await drain(app, concurrency=1)
    assert ran == list(range(COUNT))


async def test_the_first_part_is_on_its_way_before_the_next_is_made(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0
    made_by_part: list[int] = []
    make, columns = new_task.make_task, codec.columns

    def counting(*given: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        return make(*given, **options)

    def noting(tasks: Any) -> list[Any]:
        made_by_part.append(made)
        return columns(tasks)

    monkeypatch.setattr(new_task, "make_task", counting)
    monkeypatch.setattr(codec, "columns", noting)
    declare(app)
    await app.enqueue_many([("COUNTED", {"n": n}) for n in range(COUNT)])
    if app.shown_url.startswith("postgresql"):
        assert made_by_part == [*range(TASKS_PER_PART, COUNT, TASKS_PER_PART), COUNT]
    assert made == COUNT == await waiting(app)


@pytest.mark.parametrize("bad", [0, TASKS_PER_PART - 1, TASKS_PER_PART, COUNT - 1])
async def test_one_bad_task_anywhere_in_a_long_list_refuses_all_of_it(app: App, bad: int) -> None:
    declare(app)
    given = [("COUNTED", {"n": "x" if n == bad else n}) for n in range(COUNT)]
    with pytest.raises(PayloadInvalid, match=f"task {bad} of the list"):
        await app.enqueue_many(given)
    with pytest.raises(InvalidInput, match=f"task {bad} of the list"):
        await app.enqueue_many([17 if n == bad else ("COUNTED", {"n": n}) for n in range(COUNT)])  # type: ignore[misc]
    assert await waiting(app) == 0
    await app.enqueue_many([("COUNTED", {"n": n}) for n in range(COUNT)])  # and nothing is left in a bad state
    assert await waiting(app) == COUNT


async def test_a_long_list_with_keys_is_enqueued_once(app: App) -> None:
    declare(app)
    given = [{"kind": "COUNTED", "payload": {"n": n}, "idempotency_key": f"k{n}"} for n in range(COUNT)]
    first = await app.enqueue_many(given)
    again = await app.enqueue_many(given)
    assert [task.id for task in again] == [task.id for task in first]
    assert await waiting(app) == COUNT


class Record:
    """What drivers answer: like a mapping, and none."""

    def __init__(self, **values: Any) -> None:
        self._values = values

    def keys(self) -> Iterable[str]:
        return self._values.keys()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]


async def test_keys_count_in_whatever_a_driver_answers(app: App) -> None:
    declare(app)
    given: Any = [Record(kind="COUNTED", payload={"n": n}, idempotency_key=f"k{n}") for n in range(COUNT)]
    first = await app.enqueue_many(given)
    assert [task.id for task in await app.enqueue_many(given)] == [task.id for task in first]
    assert await waiting(app) == COUNT
    given[-1] = Record(kind="COUNTED", payload={"n": -1}, idempotency_key="k0")
    given[0] = Record(kind="COUNTED", payload={"n": 0})
    with pytest.raises(IdempotencyConflict):
        await app.enqueue_many(given)
    assert await waiting(app) == COUNT


async def test_an_error_of_the_producers_own_is_the_producers_own(app: App) -> None:
    """A validator may raise anything; it says nothing about the database."""

    class Moody(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def look_elsewhere(cls, n: int) -> int:
            if n == COUNT - 1:
                raise TimeoutError("the directory of customers does not answer")
            return n

    @app.task("MOODY")
    async def moody(ctx: Context, payload: Moody) -> None: ...

    with pytest.raises(TimeoutError, match="customers"):
        await app.enqueue_many([("MOODY", {"n": n}) for n in range(COUNT)])
    assert await waiting(app) == 0


async def test_a_caller_that_gives_up_on_a_long_list_leaves_all_or_nothing(app: App) -> None:
    declare(app)
    given = [("COUNTED", {"n": n}) for n in range(COUNT)]
    await app.enqueue_many(given[:1])
    for moment in range(8):
        before = await waiting(app)
        call = asyncio.create_task(app.enqueue_many(given))
        for _ in range(moment):
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await waiting(app) - before) in (0, COUNT)
    await app.enqueue_many(given)


@pytest.mark.parametrize("answer", [b"BEGIN", b"redrive.enqueue(", b"COMMIT"])
async def test_a_long_list_whose_answer_is_lost_is_enqueued_once(proxied_url: str, proxy: Proxy, answer: bytes) -> None:
    async with App(proxied_url) as app:
        await app.enqueue_many([("COUNTED", {"n": n}) for n in range(COUNT)])
        proxy.swallow_answers(answer)
        call = asyncio.create_task(app.enqueue_many([("COUNTED", {"n": n}) for n in range(COUNT)]))
        async with asyncio.timeout(60):
            while not proxy.swallowing:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # what was sent arrives
        proxy.restore()
        proxy.cut()
        assert len(await call) == COUNT
        assert await waiting(app) == 2 * COUNT
