"""What an application's open transaction holds keeps nobody waiting but what needs it (PostgreSQL)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from redrive import App, Context, State
from redrive.feature import Effects, Feature, Landed, NewJoin, Posting
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.task import NewTask
from redrive.settings import load_settings
from tests.worker.conftest import ended, until, working

WORLD = "system:world"


def _pays(_: Any, landed: Landed) -> Effects | None:
    if landed.state is not State.COMPLETED:
        return None
    return Effects(postings=[Posting(str(landed.task_id), ((WORLD, -1), ("revenue", 1)))])


PAYING = Feature("paying", "tests.worker", react=_pays)


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[App]:
    app = App(settings=load_settings(url=postgres_url, log_format="off", lease_ms=6000), features=[PAYING])

    @app.task("SHORT")
    async def short(ctx: Context) -> None: ...

    @app.task("OTHER")
    async def other(ctx: Context) -> None: ...

    yield app
    await app.close()


def _new(kind: str, **values: Any) -> NewTask:
    return NewTask(new_id(), kind, "default", None, **values)


async def _hold(app: App, mine: asyncpg.Connection, what: str) -> NewTask:
    """Returns a new task whose settlement needs what the open transaction of ``mine`` holds from now on."""
    if what == "account":
        await app.apply(Commit(postings=[Posting("seed", ((WORLD, -1), ("revenue", 1)))]))
        await app.apply(Commit(postings=[Posting("mine", ((WORLD, -1), ("revenue", 1)))]), connection=mine)
        task = _new("SHORT", feature="paying", max_attempts=1)
        await app.apply(Commit(enqueues=[task]))
        return task
    join = NewJoin(new_id(), on_complete=_new("OTHER", idempotency_key="next"))
    task = _new("SHORT", join=join.id, max_attempts=1)
    await app.apply(Commit(joins=[join], enqueues=[task]))
    await app.enqueue("OTHER", idempotency_key="next", queue="nobody", connection=mine)
    return task


@pytest.mark.parametrize("what", ["account", "key"])
async def test_what_is_blocked_is_settled_apart_and_its_lease_is_kept(app: App, postgres_url: str, what: str) -> None:
    mine = await asyncpg.connect(postgres_url)
    look = await asyncpg.connect(postgres_url)
    await mine.execute("begin")
    task = await _hold(app, mine, what)
    async with working(app) as worker:
        await until(lambda: len(worker.settling.blocked) == 1)
        # Others are claimed, run and settled meanwhile, and also after its lease would have ended.
        lease = "select lease_expires_at from redrive.task where id = $1 and state = 'running'"
        first = await look.fetchval(lease, task.id)
        for _ in range(3):
            await ended(app, (await app.enqueue("OTHER")).id)

        async def renewed() -> bool:
            return bool(await look.fetchval(lease, task.id) > first)

        await until(renewed)
        await ended(app, (await app.enqueue("OTHER")).id)
        assert len(worker.settling.blocked) == 1 and worker.health.store_error is None
        await mine.execute("commit")
        found = await ended(app, task.id)
        assert (found.state, found.attempt_count) == (State.COMPLETED, 1)
    await mine.close()
    await look.close()


async def test_what_comes_after_it_and_needs_the_same_waits_with_it(app: App, postgres_url: str) -> None:
    mine = await asyncpg.connect(postgres_url)
    await mine.execute("begin")
    first, second = await _hold(app, mine, "account"), _new("SHORT", feature="paying")
    async with working(app) as worker:
        await until(lambda: len(worker.settling.blocked) == 1)
        await app.apply(Commit(enqueues=[second]))
        await until(lambda: len(worker.settling.blocked) == 2)
        assert worker.settling.blocked._lines.keys() == {(None, "paying")}
        await mine.execute("rollback")
        assert {(await ended(app, task.id)).attempt_count for task in (first, second)} == {1}
    assert await (await app.store()).sql.balance("revenue") == 3
    await mine.close()


async def test_a_worker_that_is_cut_off_settles_the_others(app: App, postgres_url: str) -> None:
    mine = await asyncpg.connect(postgres_url)
    await mine.execute("begin")
    task = await _hold(app, mine, "key")
    worker = app.worker(await app.store())
    running = asyncio.create_task(worker.run())
    await until(lambda: len(worker.settling.blocked) == 1)
    other = (await app.enqueue("OTHER")).id
    await ended(app, other)
    asyncio.get_running_loop().call_later(0.5, lambda: asyncio.create_task(mine.execute("rollback")))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (await ended(app, task.id)).state is State.COMPLETED
    await mine.close()
