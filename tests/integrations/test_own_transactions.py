"""Enqueueing inside ``ctx.transaction()``: writes, completion and the next task in one commit."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

import psycopg
import pytest

from redrive import Context
from redrive.errors import IdempotencyConflict
from redrive.settings import Options
from tests.integrations.conftest import Outside, seen


@pytest.fixture(params=["postgres", "sqlite"])
def outside(request: pytest.FixtureRequest) -> Outside:
    found: Outside = request.getfixturevalue(f"on_{request.param}")
    return found


def _start(outside: Outside, handler: Any) -> None:
    outside.app.task("FIRST", max_attempts=1)(handler)
    asyncio.run(_enqueue(outside))


async def _enqueue(outside: Outside) -> None:
    await outside.app.enqueue("FIRST")
    await outside.app.close()


def _states(outside: Outside) -> dict[str, str]:
    return dict(outside.ask(f"select kind, state from {outside.table('v_tasks')}"))


def test_an_async_handler(outside: Outside) -> None:
    async def first(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into business values ('first')")
            made = await outside.app.enqueue("SHIP", {"order": 1}, idempotency_key="k", connection=tx)
            again = await outside.app.enqueue("SHIP", {"order": 1}, idempotency_key="k", connection=tx)
            assert made.id == again.id
            with pytest.raises(IdempotencyConflict):
                await outside.app.enqueue("SHIP", {"order": 2}, idempotency_key="k", connection=tx)

    _start(outside, first)
    assert outside.work() == [{"order": 1, "note": ""}]
    assert outside.business == ["first"]
    assert _states(outside) == {"FIRST": "completed", "SHIP": "completed"}


def test_a_plain_handler(outside: Outside) -> None:
    def first(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("insert into business values ('first')")
            outside.app.sync.enqueue("SHIP", {"order": 1}, connection=tx)

    _start(outside, first)
    assert outside.work() == [{"order": 1, "note": ""}]
    assert outside.business == ["first"]
    assert _states(outside) == {"FIRST": "completed", "SHIP": "completed"}


def test_an_exception_leaves_nothing(outside: Outside) -> None:
    async def first(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("insert into business values ('first')")
            await outside.app.enqueue("SHIP", {"order": 1}, idempotency_key="k", connection=tx)
            raise RuntimeError("after the enqueue")

    _start(outside, first)
    assert outside.work() == []
    assert (outside.business, outside.keys) == ([], 0)
    assert _states(outside) == {"FIRST": "failed"}


def test_a_waiting_worker_hears_of_a_callers_commit(outside: Outside) -> None:
    """Without waiting for its poll: PostgreSQL notifies, a SQLite file's version is watched."""

    def caller() -> None:
        connect: Any = sqlite3.connect if outside.sqlite else psycopg.connect
        connection = connect(outside.address)
        outside.app.sync.enqueue("SHIP", {"order": 1}, connection=connection)
        connection.commit()
        connection.close()

    async def scenario() -> None:
        store = await outside.app.store()
        worker = outside.app.worker(store, Options(sleep=60))
        running = asyncio.create_task(worker.run())
        while not store.listening:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # until the first look has found nothing
        await asyncio.to_thread(caller)
        async with asyncio.timeout(50):
            while not seen:
                await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await outside.app.close()

    seen.clear()
    asyncio.run(scenario())
    assert seen == [{"order": 1, "note": ""}]
