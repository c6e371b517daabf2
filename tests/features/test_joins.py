"""Joins as applications meet them: handlers add members to the join of their own task."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App, Context
from redrive.errors import InvalidInput
from redrive.handlers.new_task import make_task
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.joins import NewJoin
from tests.worker.conftest import drain


@pytest.fixture
def app(each_app: App) -> App:
    """On both stores."""
    return each_app


async def test_a_handler_adds_to_the_join_of_its_task(app: App) -> None:
    """A tree of tasks, each of which enqueues the next ones; what follows comes once, after the last of them."""
    seen: list[str] = []

    @app.task("VISIT")
    async def visit(ctx: Context, depth: int) -> None:
        seen.append(f"visited {depth}")
        if depth:
            children = [{"kind": "VISIT", "payload": {"depth": depth - 1}, "join": ctx.task.join}] * 2
            await app.enqueue_many(children)

    @app.task("DONE")
    async def done(ctx: Context) -> None:
        seen.append("done")

    join = NewJoin(new_id(), on_complete=make_task(app.registry, "DONE"))
    root = make_task(app.registry, "VISIT", {"depth": 3}, join=join.id)
    store = await app.store()
    await store.apply(Commit(joins=[join], enqueues=[root]))
    for _ in range(50):  # an arrival that meets an open addition is counted within a second after it
        await drain(app)
        if "done" in seen:
            break
        await asyncio.sleep(0.2)
    assert len(seen) == 16 and seen[-1] == "done"
    (found,) = await store.joins([join.id])
    assert (found.total, found.completed) == (15, 15)


async def test_a_typed_task_joins_too_and_long_lists_do(app: App) -> None:
    @app.task("A")
    async def a(ctx: Context, n: int) -> None: ...

    join = NewJoin(new_id(), open=True)
    store = await app.store()
    await store.apply(Commit(joins=[join]))
    task = await a.options(join=join.id).enqueue(n=1)
    assert task.join_id == join.id
    await app.enqueue_many([{"kind": "A", "payload": {"n": n}, "join": join.id} for n in range(700)])
    (found,) = await store.joins([join.id])
    assert found.total == 701


async def test_what_is_no_join_is_refused(app: App) -> None:
    with pytest.raises(InvalidInput, match="join must be a UUID"):
        await app.enqueue("SYSTEM_HEALTH_CHECK", join="mine")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="takes no members"):
        await app.enqueue("SYSTEM_HEALTH_CHECK", join=new_id())
