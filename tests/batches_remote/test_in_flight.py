"""Jobs in flight are bounded: of a provider over all batches and workers, and of a batch that says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack

import psycopg
import pytest

from redrive import App, State
from redrive.batches.duties import duties
from redrive.batches.names import PLACES, WAITED
from redrive.batches.remote import in_flight
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.in_flight import Start, fill_places, take_places
from redrive.batches.remote.model import RemoteBatch
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reads import Query
from redrive.ops.why import Reason
from redrive.remote import RemoteItem, Status
from tests.batches_remote.conftest import (
    Scripted,
    age,
    counts,
    made,
    make_app,
    money,
    opened,
    service,
    settled,
    work,
)
from tests.databases import Databases
from tests.worker.conftest import until

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
    batches = [await made(app, [{}] * 8) for _ in range(2)]
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
            return all([(await app.of(RemoteBatches).get(one.id)).settled for one in batches])

        await until(done, 60)
    assert [await counts(app, one) for one in batches] == [{"completed": 8}] * 2
    assert provider.most == MOST and len(provider.starts) == 16
    assert await money(app) == (1000 - 160, 0, 160)


async def test_a_batch_is_bounded_itself(store_url: str) -> None:
    async with opened(make_app(store_url, poll_later=3600.0, poll_first=3600.0)) as app:
        provider = Counting()
        app.provider("video", provider)
        free, own = await made(app, [{}] * 4), await made(app, [{}] * 4, max_in_flight=2)
        await work(app, free)
        assert (await counts(app, free), await counts(app, own)) == (
            {"processing": 4},
            {"processing": 2, "pending": 2},
        )
        [held] = [one for one in await waits(app, own) if one.code == "in_flight"]
        assert held.text.endswith(" for a place: 2 of 2 jobs of this batch are in flight (max_in_flight)")
        await fill_places(await app.store(), None, lambda: False)
        await work(app, own)
        assert await counts(app, own) == {"processing": 2, "pending": 2}, "none has become free"


class Lossy(Counting):
    """While ``drops``, requests to start never arrive, and nobody learns that."""

    drops = True

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        if self.drops and item.payload.get("drop", True):
            self.starts[idempotency_key] += 1
            raise TimeoutError("no answer")
        return await super().start(item, idempotency_key)


@pytest.mark.parametrize("of", ["provider", "batch"])
async def test_a_retry_of_what_is_unknown_takes_places_like_others(store_url: str, of: str) -> None:
    """An earlier start that may have gone out says by which key the next one goes, and nothing about places."""
    most = {"max_in_flight": 2}
    settings = {
        "max_start_attempts": 1,
        "poll_first": 3600.0,
        "poll_later": 3600.0,
        **(most if of == "provider" else {}),
    }
    async with opened(make_app(store_url, **settings)) as app:
        provider = Lossy()
        app.provider("video", provider)
        bound = most if of == "batch" else {}
        batch = await settled(app, await made(app, [{}] * 5, **bound))
        assert [one.unknown for one in await (await service(app)).items(batch.id)] == [True] * 5
        keys, provider.drops = set(provider.starts), False
        await (await service(app)).retry_failed(batch.id)
        batch = await work(app, batch)
        assert await counts(app, batch) == {"processing": 2, "pending": 3}
        assert "2 of 2 jobs" in next(one.text for one in await waits(app, batch) if one.code == "in_flight")
        provider.lets = 1000
        batch = await filled(app, batch, 2 if of == "provider" else None)
        assert (await counts(app, batch), provider.most) == ({"completed": 5}, 2)
        assert set(provider.starts) == keys, "the provider knows them by the same keys"


async def test_a_retry_of_single_items_takes_places_too(store_url: str) -> None:
    async with opened(make_app(store_url, max_start_attempts=1, poll_first=3600.0, poll_later=3600.0)) as app:
        provider = Lossy()
        app.provider("video", provider)
        batch = await work(app, await made(app, [{"drop": False}, {}, {}, {}], max_in_flight=2))
        batch = await filled(app, batch, None)
        assert await counts(app, batch) == {"processing": 1, "failed": 3}
        provider.drops = False
        for item in (await (await service(app)).items(batch.id))[1:]:
            assert item.unknown and item.task_id is not None
            await app.retry(item.task_id, actor="ann")
        batch = await work(app, batch)
        assert (await counts(app, batch), provider.most) == ({"processing": 2, "pending": 2}, 2)


async def test_a_full_provider_hides_no_other(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait longest are looked at first, as far as there are places for them."""
    monkeypatch.setattr(in_flight, "PAGE", 3)
    settings = {"poll_first": 3600.0, "poll_later": 3600.0, "max_start": 10}
    async with opened(make_app(store_url, max_in_flight=2, **settings)) as app:
        video, audio = Counting(), Counting()
        app.provider("video", video)
        app.provider("audio", audio)
        own = app.of(RemoteBatches)
        full = await made(app, [{}] * 8)
        await work(app, full)
        await age(app, "batches_item", "brought_at", 3600)
        narrow = await own.create([{}] * 4, provider="audio", max_in_flight=1)
        await work(app, narrow)
        await age(app, "batches_item", "brought_at", 1800)
        other = await own.create([{}] * 4, provider="audio")
        await work(app, other)
        assert (await counts(app, full), await counts(app, narrow), await counts(app, other)) == (
            {"processing": 2, "pending": 6},
            {"processing": 1, "pending": 3},
            {"processing": 1, "pending": 3},
        )
        audio.lets = 1000
        other = await filled(app, other, 2)
        assert await counts(app, other) == {"completed": 4}
        assert await counts(app, await filled(app, narrow, 2)) == {"completed": 4}
        assert (await counts(app, full), audio.most, video.most) == ({"processing": 2, "pending": 6}, 2, 2)


async def test_what_is_waited_for_is_said_by_the_workers_settings(store_url: str) -> None:
    """Whoever asks, a command or the API, may have others."""
    async with opened(make_app(store_url, max_in_flight=2, poll_first=3600.0)) as app:
        app.provider("video", Counting())
        batch = await work(app, await made(app, [{}] * 5))
        for other in ({}, {"max_in_flight": 100}):
            reader = make_app(store_url, **other)
            [held] = [one for one in await waits(reader, batch) if one.code == "in_flight"]
            assert held.text == "3 for a place: 2 of 2 jobs at video are in flight (BATCH_MAX_IN_FLIGHT)"
            await reader.close()


async def test_what_has_ended_takes_no_place(store_url: str) -> None:
    async with opened(make_app(store_url, max_in_flight=2)) as app:
        app.provider("video", Scripted())
        batch = await work(app, await made(app, [{}, {"refuse": 429}]))
        assert await counts(app, batch) == {"completed": 1, "pending": 1}
        store = await app.store()
        for n, round, places in ((1, 1, set()), (2, 2, set()), (2, 1, {(str(batch.id), 2)})):
            start = Start(str(batch.id), n, round, "a-key")
            assert await take_places(store, "video", 5, [start], bounded=True) == places


async def filled(app: App, batch: RemoteBatch, most: int | None) -> RemoteBatch:
    """Makes due what has a place or a job, and works, until nothing of a batch moves any more."""
    before = None
    while before != (before := await counts(app, batch)):
        await fill_places(await app.store(), most, lambda: False)
        store = await app.store()
        jobs = {one.task_id for one in await (await service(app)).items(batch.id) if one.job is not None}
        due = [one.id for one in await store.find(Query((State.DELAYED,), limit=100)) if one.id in jobs]
        await store.apply(Commit(transitions=[Transition(one, Event.DUE, State.QUEUED) for one in due]))
        batch = await work(app, batch)
    return batch


async def test_nobody_is_kept_waiting_by_a_lock_that_needs_no_right(databases: Databases, database: str) -> None:
    """An advisory lock is anybody's who may connect; the row of a provider is the fleet's."""
    url = databases.url(database)
    async with opened(make_app(url, max_in_flight=MOST, max_poll_count=100_000, poll_later=0.2)) as app:
        provider = Counting()
        app.provider("video", provider)
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


async def waits(app: App, batch: RemoteBatch) -> list[Reason]:
    return await (await service(app)).waits_for(batch.id)


async def test_nobody_looks_for_items_that_wait_before_one_has(app: App, provider: Counting) -> None:
    """Most applications bound nothing: an idle worker asks nothing for it."""
    [places] = [one for one in duties(app.settings) if one.name == "batches:places"]
    store = await app.store()
    collection, state = places.while_record or ("", "")
    assert (collection, state) == (PLACES, WAITED)
    few = await made(app, [{}] * MOST)
    await work(app, few)
    assert await store.records(collection, states=(state,)) == []
    await work(app, await made(app, [{}] * 2))
    assert len(await store.records(collection, states=(state,))) == 1
