"""Jobs in flight are bounded: of a provider over all batches and workers, and of a batch that says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack

import psycopg
import pytest

from redrive import App
from redrive.batches.duties import duties
from redrive.batches.remote.in_flight import COLLECTION, WAITED, fill_places
from redrive.batches.remote.model import RemoteBatch
from redrive.remote import RemoteItem, Status
from tests.batches_remote.conftest import Scripted, counts, made, make_app, money, opened, rich, service, work
from tests.databases import Databases
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio
MOST = 5


class Counting(Scripted):
    """Knows how many of its jobs run, and how many did at once at most; they end when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.running: set[str] = set()
        self.most = 0
        self.lets = 0

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if idempotency_key not in self.jobs:
            self.running.add(idempotency_key)
            self.most = max(self.most, len(self.running))
        await asyncio.sleep(0)
        return await super().start(item, idempotency_key)

    async def poll(self, ids: Sequence[str]) -> dict[str, Status]:
        for one in ids:
            if self.lets and one in self.running:
                self.running.discard(one)
                self.lets -= 1
        return {one: Status.running() if one in self.running else Status.succeeded({}) for one in ids}


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[App]:
    async with opened(make_app(store_url, max_in_flight=MOST, max_poll_count=100_000, poll_later=0.2)) as app:
        yield app


@pytest.fixture
def provider(app: App) -> Counting:
    made = Counting()
    app.provider("video", made)
    return made


async def test_a_provider_is_bounded_over_batches_and_workers(app: App, provider: Counting) -> None:
    await rich(app)
    batches = [await made(app, [{}] * 12) for _ in range(3)]
    queues = ",".join(app.queues())
    async with app.worker(queues=queues), app.worker(queues=queues), app.worker(queues=queues):

        async def full() -> bool:
            return len(provider.running) == MOST

        async def told() -> object:
            waits = [one for batch in batches for one in await (await service(app)).waits_for(batch.id)]
            return [one.text for one in waits if one.code == "in_flight"]

        await until(full)
        texts = await until(told)
        assert "5 of 5 jobs at video are in flight (BATCH_MAX_IN_FLIGHT)" in texts[0]
        provider.lets = 1000

        async def done() -> bool:
            return [await counts(app, one) for one in batches] == [{"completed": 12}] * 3

        await until(done, 60)
    assert provider.most == MOST and len(provider.starts) == 36
    assert await money(app) == (1000 - 360, 0, 360) or (await money(app))[1] > 0  # the last may be about to be settled


async def test_a_batch_is_bounded_itself(store_url: str) -> None:
    async with opened(make_app(store_url, poll_later=3600.0, poll_first=3600.0)) as app:
        provider = Counting()
        app.provider("video", provider)
        await rich(app)
        free, own = await made(app, [{}] * 4), await made(app, [{}] * 4, max_in_flight=2)
        await work(app, free)
        assert (await counts(app, free), await counts(app, own)) == (
            {"processing": 4},
            {"processing": 2, "pending": 2},
        )
        [held] = [one for one in await waits(app, own) if one.code == "in_flight"]
        assert held.text == "1 for a place: 2 of 2 jobs of this batch are in flight (max_in_flight)" or held.text == (
            "2 for a place: 2 of 2 jobs of this batch are in flight (max_in_flight)"
        )
        await fill_places(await app.store(), None, lambda: False)
        await work(app, own)
        assert await counts(app, own) == {"processing": 2, "pending": 2}, "none has become free"


async def test_nobody_is_kept_waiting_by_a_lock_that_needs_no_right(databases: Databases, database: str) -> None:
    """An advisory lock is anybody's who may connect; the row of a provider is the fleet's."""
    url = databases.url(database)
    async with opened(make_app(url, max_in_flight=MOST, max_poll_count=100_000, poll_later=0.2)) as app:
        provider = Counting()
        app.provider("video", provider)
        await rich(app)
        batch = await made(app, [{}] * 3)
        with psycopg.connect(url, autocommit=True) as owner, ExitStack() as stack:
            role = stack.enter_context(databases.role("producer"))
            stack.callback(owner.execute, f"drop owned by {role}")
            owner.execute(f"select redrive.grant_producer('{role}')")
            with psycopg.connect(databases.url(database, user=role)) as anybody:
                anybody.execute("select pg_advisory_lock(hashtextextended('redrive.batches_in_flight:video', 0))")
                await asyncio.wait_for(work(app, batch), 60)
                assert await counts(app, batch) == {"processing": 3}
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    anybody.execute("select 1 from redrive.batches_flight for key share")


async def waits(app: App, batch: RemoteBatch) -> list[object]:
    return await (await service(app)).waits_for(batch.id)  # type: ignore[return-value]


async def test_nobody_looks_for_items_that_wait_before_one_has(app: App, provider: Counting) -> None:
    """Most applications bound nothing: an idle worker asks nothing for it."""
    [places] = [one for one in duties(app.settings) if one.name == "batches:places"]
    store = await app.store()
    collection, state = places.while_record or ("", "")
    assert (collection, state) == (COLLECTION, WAITED)
    await rich(app)
    few = await made(app, [{}] * MOST)
    await work(app, few)
    assert await store.records(collection, states=(state,)) == []
    await work(app, await made(app, [{}] * 2))
    assert len(await store.records(collection, states=(state,))) == 1
