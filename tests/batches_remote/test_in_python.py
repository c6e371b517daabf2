"""What an application does with batches in Python, and its tests on the kit's clock."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import App, Fail
from redrive.batches import BatchState, ItemState
from redrive.testing import using
from tests.batches_remote.conftest import Scripted, made, make_app, money, rich
from tests.batches_remote.test_overdue import open_circuit

pytestmark = pytest.mark.anyio


async def test_an_items_time_is_over_on_the_kits_clock() -> None:
    app, provider = make_app("sqlite:///:memory:", poll_later=30.0, poll_first=5.0), Scripted()
    app.provider("video", provider)
    async with using(app) as kit:
        await rich(app)
        batch = await made(app, [{"polls": 10_000}])
        provider.hold = True  # every look fails: they are not counted
        await kit.drain()
        kit.advance(86_000)
        await kit.drain()
        assert [one.state async for one in app.remote_batches.items(batch.id)] == [ItemState.PROCESSING]
        kit.advance(4_000)
        await kit.drain()
        found = await app.remote_batches.get(batch.id)
        [item] = [one async for one in app.remote_batches.items(batch.id)]
        assert (found.state, item.error_code, item.unknown) == (BatchState.FAILED, "BATCH_MAX_ITEM_SECONDS", True)
        assert await money(app) == (1000, 0, 0)


async def test_items_behind_an_open_circuit_end_on_the_kits_clock() -> None:
    app, provider = make_app("sqlite:///:memory:", last_look_seconds=900.0), Scripted()
    app.provider("video", provider)
    async with using(app) as kit:
        await rich(app)
        provider.hold = True
        batch = await made(app, [{}])
        await kit.drain()
        kit.advance(90_000)
        await open_circuit(app)
        await kit.drain()
        [item] = [one async for one in app.remote_batches.items(batch.id)]
        assert (item.state, item.error_code, item.unknown) == (ItemState.FAILED, "BATCH_MAX_ITEM_SECONDS", True)
        assert (await app.remote_batches.get(batch.id)).state is BatchState.PROCESSING, "it waits for a last look"
        kit.advance(901)
        await kit.drain()
        assert (await app.remote_batches.get(batch.id)).state is BatchState.FAILED
        assert await money(app) == (1000, 0, 0) and not provider.calls


async def test_a_batch_that_was_left_open_ends_on_the_kits_clock() -> None:
    app = App("sqlite:///:memory:", settings=make_app("sqlite:///:memory:").settings)

    @app.task("SEND")
    async def send(ctx: Any) -> None: ...

    async with using(app) as kit:
        left = app.batch()
        await left.enter()
        await left.add(("SEND", {}))
        kit.advance(25 * 3600)
        await kit.drain()
        assert (await app.batch.get(left.id)).state is BatchState.CANCELLED


async def test_batches_of_both_sorts_are_cancelled_and_retried() -> None:
    app, provider = App("sqlite:///:memory:", settings=make_app("sqlite:///:memory:").settings), Scripted()
    app.provider("video", provider)
    broken = [True]

    @app.task("SEND", max_attempts=1)
    async def send(ctx: Any, n: int = 0) -> None:
        if broken[0]:
            raise Fail("NOT_NOW")

    async with using(app) as kit:
        await rich(app)
        tasks = await app.batch([("SEND", {"n": n}) for n in range(3)])
        jobs = await made(app, [{"fail": "no", "once": True}, {}])
        await kit.drain()
        assert [(await app.batch.get(one.id)).state for one in (tasks, jobs)] == ["failed", "completed"]
        broken[0] = False
        assert (await app.batch.retry_failed(jobs.id, "the model is back")).remote.round == 2
        await app.batch.retry_failed(tasks.id, "fixed")
        await kit.drain()
        assert [one.state async for one in app.batch.items(jobs.id)] == [ItemState.COMPLETED] * 2
        waiting = await app.batch([("SEND", {"n": n}) for n in range(3)])
        assert (await app.batch.cancel(waiting.id, "not wanted")).state is BatchState.CANCELLED
        assert (await app.batch.cancel((await made(app, [{}])).id)).state is BatchState.CANCELLED
