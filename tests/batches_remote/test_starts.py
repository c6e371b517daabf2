"""A start that always fails: it ends by its own bounds, as the provider calls it, and holds nobody up meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import App, State
from redrive.kernel.circuit import probe_now
from redrive.kernel.commit import Commit
from redrive.kernel.reads import Query
from redrive.remote import ProviderError, RemoteItem
from tests.batches_remote.conftest import (
    Scripted,
    close_circuit,
    counts,
    made,
    make_app,
    make_due,
    money,
    open_circuit,
    opened,
    service,
    settled,
    work,
)
from tests.worker.conftest import until


class Broken(Scripted):
    """Starts of {"broken": …} are answered with a 500, and have begun a job all the same where that says so."""

    mends = False

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if "broken" not in item.payload or self.mends:
            return await super().start(item, idempotency_key)
        self.starts[idempotency_key] += 1
        if item.payload["broken"] == "began":
            self.jobs[idempotency_key] = {}
        raise ProviderError("internal", status_code=500, code="E_RENDER", retry_after="3600")


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    async with opened(make_app(store_url, max_start_attempts=3)) as app:
        yield app


@pytest.fixture
def provider(app: App) -> Broken:
    made = Broken()
    app.provider("video", made)
    return made


async def rounds(app: App, batch: object, times: int) -> None:
    for _ in range(times):
        await make_due(app)
        await work(app, batch)  # type: ignore[arg-type]


async def test_one_that_always_fails_steps_out_of_its_lane(app: App, provider: Broken) -> None:
    """Three chains: behind item 1 come 4, 7, 10 …; they waited until its day was over."""
    batch = await made(app, [{"broken": "no"}, *[{}] * 14])
    await work(app, batch)
    assert (await counts(app, batch))["completed"] == 10, "the two other chains"
    waits = await (await service(app)).waits_for(batch.id)
    assert [one.code for one in waits] == ["start", "turn"], "each item that has not ended is accounted for"
    assert waits[0].text.startswith(
        "1 could not be started yet, the first is item 1: it could not be started (attempt 1"
    )
    assert waits[1].text.startswith("4 for their turn")
    await rounds(app, batch, 1)
    assert await counts(app, batch) == {"completed": 14, "pending": 1}
    [item] = await (await service(app)).items(batch.id, states=["pending"])
    assert "attempt 2 of 3" in str(item.waits_for)
    await rounds(app, batch, 1)
    found = await settled(app, batch)
    assert (found.state, await money(app)) == ("completed", (1000 - 140, 0, 140))
    [item] = await (await service(app)).items(batch.id, states=["failed"])
    assert (item.error_code, item.failure_type, item.unknown) == ("E_RENDER", "model_error", True)
    assert provider.starts[f"{batch.id}-1:1"] == 3, "always by the same key"


async def test_at_most_one_steps_out_of_each_lane_and_none_while_the_circuit_is_open(
    app: App, provider: Broken
) -> None:
    batch = await made(app, [{"broken": "no"}] * 12)
    await work(app, batch)
    assert len(provider.starts) == 3
    await open_circuit(app)
    await rounds(app, batch, 1)
    assert len(provider.starts) == 3
    await close_circuit(app)
    await rounds(app, batch, 1)
    assert len(provider.starts) == 6, "each chain goes on with one more, and no further"


async def is_open(app: App) -> bool:
    return any(row.open for row in await (await app.store()).circuits())


async def test_one_item_alone_opens_no_circuit(store_url: str) -> None:
    """Others were started since it failed first: what it says is about itself, and nobody stands behind it."""
    async with opened(make_app(store_url, max_start_attempts=12)) as app:
        provider = Broken()
        app.provider("video", provider)
        batch = await made(app, [{"broken": "no"}, {}, {}])
        async with app.worker(queues=",".join(app.queues())):
            await until(lambda: completed(app, batch, 2))
            for n in range(1, 10):
                await until(lambda n=n: starts(provider, f"{batch.id}-1:1", n))
                await until(lambda: make_due(app))
            assert not await is_open(app)
            other = await made(app, [{}] * 20)
            assert (await settled(app, other)).captured == 200
        [item] = await (await service(app)).items(batch.id, states=["pending"])
        assert "of 12" in str(item.waits_for)


async def completed(app: App, batch: Any, n: int) -> bool:
    return (await counts(app, batch)).get("completed", 0) >= n


async def starts(provider: Broken, key: str, n: int) -> bool:
    return provider.starts[key] >= n


async def test_a_provider_that_is_down_for_all_opens_it_soon(store_url: str) -> None:
    async with opened(make_app(store_url)) as app:
        provider = Scripted()
        provider.down = ProviderError("gone", status_code=503)
        app.provider("video", provider)
        batch = await made(app, [{}])

        async def opens() -> bool:
            await make_due(app)
            return await is_open(app)

        async with app.worker(queues=",".join(app.queues())):
            await until(opens)
        provider.down = None
        await close_circuit(app)
        await make_due(app)
        assert (await settled(app, batch)).captured == 10


async def test_a_probe_that_failed_lets_the_next_of_its_chain_be_one(app: App, provider: Broken) -> None:
    """Behind an open circuit only the first of each chain are there: if none of them starts, it never closed."""
    batch = await made(app, [*[{"broken": "no"}] * 4, *[{}] * 8])
    await work(app, batch)
    assert len(provider.starts) == 3
    await open_circuit(app)
    store = await app.store()
    calls = 0
    while await is_open(app):
        assert calls < 12, "each probe is by another item"
        [row] = [row for row in await store.circuits() if row.name == "video"]
        await store.apply(Commit(controls=[probe_now(row)]))
        await make_due(app)
        await work(app, batch)
        calls += 1
    assert calls > 1, "the first ones were by items that cannot be started"
    await rounds(app, batch, 8)
    assert await counts(app, batch) == {"completed": 8, "failed": 4}


async def test_a_probe_that_is_alone_with_its_trouble_puts_the_next_one_off_no_further(
    app: App, provider: Broken
) -> None:
    batch = await made(app, [{"broken": "no"}, {}, {}])
    store = await app.store()
    async with app.worker(queues=",".join(app.queues())):
        await until(lambda: completed(app, batch, 2))
        for n in range(2, 5):
            await open_circuit(app)
            [row] = await store.circuits()
            await store.apply(Commit(controls=[probe_now(row)]))
            await until(lambda: make_due(app))
            await until(lambda n=n: starts(provider, f"{batch.id}-1:1", n))
            await until(lambda: delayed(app))
        [row] = await store.circuits()
    assert row.open and row.failed_probes == 0
    assert row.until is not None and (row.until - await store.now()).total_seconds() < 6, "its first delay"


async def delayed(app: App) -> bool:
    """Returns whether it waits by its own backoff, and so is not the next probe."""
    return bool(await (await app.store()).find(Query((State.DELAYED,), limit=1)))


@pytest.mark.parametrize("began", ["began", "no"])
async def test_the_last_look_is_by_key_where_the_provider_can(app: App, provider: Broken, began: str) -> None:
    """A 500 may have begun a job: its customer gets it, and nobody starts it again."""
    provider.can_find = True
    batch = await made(app, [{"broken": began}])
    await work(app, batch)
    await rounds(app, batch, 3)
    found = await settled(app, batch)
    [item] = await (await service(app)).items(batch.id)
    paid = 10 if began == "began" else 0
    assert (found.captured, item.state) == (paid, "completed" if paid else "failed")
    assert not item.unknown, "by the provider's word"
    assert set(provider.starts) == {f"{batch.id}-1:1"}


async def test_what_may_have_begun_is_not_begun_again_by_a_retry(app: App, provider: Broken) -> None:
    batch = await made(app, [{"broken": "began"}, {"refuse": 400}])
    await work(app, batch)
    await rounds(app, batch, 3)
    batch = await settled(app, batch)
    unknown, refused = await (await service(app)).items(batch.id)
    assert (unknown.unknown, refused.unknown) == (True, False)
    assert await money(app) == (1000, 0, 0)
    provider.mends = True
    await (await service(app)).retry_failed(batch.id)
    batch = await settled(app, batch)
    assert (batch.round, batch.captured) == (2, 10)
    assert set(provider.starts) == {f"{batch.id}-1:1"}, "the same key: the provider knows its job"
