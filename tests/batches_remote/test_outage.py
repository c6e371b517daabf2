"""A provider that is down: what people are told, and that nothing is lost, used up or hammered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import App
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.settings import BatchSettings
from redrive.kernel.circuit import SetCircuit
from redrive.kernel.commit import Commit
from redrive.ops.access import Caller, Role
from redrive.remote import ProviderError
from redrive.settings import load_settings
from redrive.testing.provider import simulated_provider
from tests.batches_remote.conftest import Scripted, made, make_app, money, opened, rich, service, settled, work
from tests.console.conftest import console, page, text_of
from tests.worker.conftest import until

DOWN_SECONDS, ITEMS = 3, 60


async def test_why_says_what_an_item_waits_for(app: App, provider: Scripted) -> None:
    batch = await made(app, [{"polls": 9}])
    provider.hold = True
    await work(app, batch)
    [item] = await (await service(app)).items(batch.id)
    assert "could not be looked at" in str(item.error_message)
    store = await app.store()
    change = SetCircuit("video", await _version(app), ("BATCH_ITEM_VIDEO",), True, 3600.0, "video: http_5xx", "w", 0, 1)
    await store.apply(Commit(controls=[change]))
    operator = await app.operator(Caller("ann", Role.OPERATOR))
    reasons = (await operator.tasks.show(item.task_id)).why
    assert "circuit" in [one.code for one in reasons]
    assert any("could not be looked at" in one.full for one in reasons)
    async with console(app) as client:
        shown = text_of(await page(client, f"/tasks/{item.task_id}"))
        assert "circuit video is open since" in shown and "uses no attempts" in shown
        told = (await client.get("/api/doctor")).json()
        assert any("circuit video is open" in one["text"] for one in told["findings"])


async def _version(app: App) -> int:
    rows = await (await app.store()).circuits()
    return next((row.version for row in rows if row.name == "video"), 0)


async def test_a_job_that_the_provider_forgot(app: App, provider: Scripted) -> None:
    batch = await made(app, [{"polls": 9}])
    provider.hold = True
    await work(app, batch)
    provider.jobs.clear()
    provider.hold = False
    await asyncio.sleep(1.1)  # it wanted to be left alone for a second
    found = await work(app, batch)
    [item] = await (await service(app)).items(batch.id)
    assert (found.state, item.error_code, item.poll_count) == ("failed", "MAX_POLL_COUNT_REACHED:20", 20)
    assert "does not know job" in str(item.error_message)


async def test_one_odd_answer_fails_no_other_item(app: App, provider: Scripted) -> None:
    other = await made(app, [{"polls": 2}, {"polls": 3}])
    odd = await made(app, [{"polls": 1, "fail": None}])
    await work(app, odd)
    assert (await settled(app, other)).captured == 20
    items = await (await service(app)).items(odd.id) + await (await service(app)).items(other.id)
    assert [item.error_message for item in items] == ["the provider does not say why", None, None]
    tasks = [await app.get(item.task_id) for item in items if item.task_id is not None]
    assert {task.attempt_count for task in tasks if task is not None} == {1}


async def test_a_start_that_makes_no_sense_is_told_of(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await made(app, [{}])

    async def nothing(*_: Any) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(provider, "start", nothing)
        await work(app, batch)
    own = await service(app)
    [item] = await own.items(batch.id)
    assert item.state == "pending" and item.task_id is not None
    assert str(item.error_message).startswith(
        "it could not be started (attempt 1 of 10): video: start returned None where an id"
    )
    operator = await app.operator(Caller("ann", Role.OPERATOR))
    assert any("start returned None" in one.full for one in (await operator.tasks.show(item.task_id)).why)
    assert (await settled(app, batch)).captured == 10
    [item] = await own.items(batch.id)
    assert (item.state, item.error_message) == ("completed", None)


@pytest.mark.parametrize("wish", ["nan", "Tue, 17 Nov 2020 06:10:00 GMT"])
async def test_an_odd_wish_to_be_left_alone_fails_nothing(app: App, provider: Scripted, wish: str) -> None:
    batch = await made(app, [{}])
    provider.down = ProviderError("busy", status_code=503, retry_after=wish)
    await work(app, batch)
    provider.down = None
    assert (await settled(app, batch)).captured == 10


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_an_outage_costs_nothing_but_time(store_url: str) -> None:
    with simulated_provider("--duration", "1", "--spread", "0") as simulated:
        own = {"poll_first": 0.5, "poll_next": 0.5, "poll_later": 0.5}
        settings = load_settings(url=store_url, log_format="off", providers={"video": simulated.table})
        app = App(settings=settings.holding(BatchSettings(**own)))
        await app.migrate()
        await rich(app, amount=100_000)
        batch = await made(app, [{"n": n} for n in range(ITEMS)])

        async def ended() -> RemoteBatch | None:
            found = await app.of(RemoteBatches).get(batch.id)
            return found if found.settled else None

        async def begun() -> Any:
            return simulated.seen()["jobs"] >= ITEMS // 3

        async with app.worker(queues=",".join(app.queues()), concurrency=50):
            await until(begun)
            simulated.control(down_for=DOWN_SECONDS)
            refused = simulated.seen()["refused"]
            found: RemoteBatch = await until(ended, 200)
        seen = simulated.seen()
        assert (found.state, found.captured) == ("completed", ITEMS * 10)
        assert await money(app) == (100_000 - ITEMS * 10, 0, ITEMS * 10)
        assert set(seen["keys"].values()) <= {1, 2, 3} and seen["jobs"] == ITEMS
        # Whoever was under way when it began, those that opened the circuit, and then one probe at a time.
        assert seen["refused"] - refused < 50 + 10 + DOWN_SECONDS * 5
        items = await (await service(app)).items(batch.id, limit=1000)
        tasks = [await app.get(one.task_id) for one in items[:20] if one.task_id is not None]
        assert {task.attempt_count for task in tasks if task is not None} == {1}
        await app.close()


async def test_a_start_that_hangs_is_cut_short_and_the_others_are_settled(store_url: str) -> None:
    """All of one call wait for its slowest start, so that has a limit. It is started again with the same key."""
    async with opened(make_app(store_url, start_seconds=0.2)) as app:
        provider = Scripted()
        app.provider("video", provider)
        batch = await made(app, [{}, {"hang": True}, {}])
        own = await service(app)

        async def others_ended() -> bool:
            return [item.state for item in await own.items(batch.id)] == ["completed", "pending", "completed"]

        async with app.worker(queues=",".join(app.queues())):
            await until(others_ended)
        [_, hung, _] = await own.items(batch.id)
        assert "start had not returned after 0.2 seconds" in str(hung.error_message)
        assert hung.task_id is not None
        [task] = (await (await app.store()).get_many([hung.task_id])).values()
        assert (task.attempt_count, task.memo["unsure"]) == (0, True)
        provider.hangs = False
        batch = await settled(app, batch)
        assert (batch.captured, batch.released) == (30, 0)
        assert set(provider.starts) == {f"{batch.id}-{n}:1" for n in (1, 2, 3)}
        assert provider.starts[f"{batch.id}-2:1"] >= 2
