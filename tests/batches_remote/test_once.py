"""Each step of a remote batch lands once, whoever tries it at the same moment: money and state are never apart."""

from __future__ import annotations

import asyncio
from itertools import permutations

from redrive import App
from redrive.batches.names import BatchState
from redrive.batches.remote import commits
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import RemoteBatch, count_items, find_remote
from redrive.kernel.commit import Commit
from redrive.remote import ProviderError
from tests.batches_remote.conftest import Scripted, made, money, work
from tests.worker.conftest import drain, until


async def landed(app: App, commits: list[Commit]) -> int:
    """Applies all at the same moment; returns how many landed."""
    store = await app.store()
    answers = await asyncio.gather(*(store.apply(one) for one in commits), return_exceptions=True)
    return sum(not isinstance(answer, BaseException) for answer in answers)


async def running(app: App, provider: Scripted) -> RemoteBatch:
    """Returns a batch of which three items wait for a provider that is away."""
    provider.down = ProviderError("away", status_code=503)
    return await work(app, await made(app, [{}] * 10))


async def test_it_is_dispatched_once(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}] * 10)
    assert await landed(app, [commits.dispatch(batch, 3) for _ in range(3)]) == 1
    assert await money(app) == (900, 100, 0)


async def items_ended(app: App, provider: Scripted, batch: RemoteBatch) -> RemoteBatch:
    """Lets all items of a batch fail, or end as cancelled; nobody settles it."""
    provider.down = ProviderError("no", status_code=400)
    store = await app.store()

    async def look() -> bool:
        await drain(app, queues=["batches"])
        found = await count_items(store, batch)
        return found.ended == batch.items

    await until(look)
    return await find_remote(store, batch.id)


async def test_it_is_settled_once_and_what_was_read_before_does_not_land(app: App, provider: Scripted) -> None:
    batch = await items_ended(app, provider, await running(app, provider))
    store = await app.store()
    counts = await count_items(store, batch)
    assert await landed(app, [commits.settle(batch, counts) for _ in range(3)]) == 1
    assert await money(app) == (1000, 0, 0)
    late = [commits.release(batch, 7), commits.cancel(batch, "ann", None, counts), commits.settle(batch, counts)]
    assert await landed(app, late) == 0
    assert (await find_remote(store, batch.id)).released == 100


async def test_release_and_settlement_in_any_order_give_back_once(app: App, provider: Scripted) -> None:
    store = await app.store()
    for order in permutations(range(2)):
        batch = await running(app, provider)
        batch = await app.of(RemoteBatches).cancel(batch.id)
        batch = await items_ended(app, provider, batch)
        both = [commits.release(batch, 7), commits.settle(batch, await count_items(store, batch))]
        assert await landed(app, [both[at] for at in order]) == 1
        found = await find_remote(store, batch.id)
        if not found.settled:
            await store.apply(commits.settle(found, await count_items(store, found)))
        found = await find_remote(store, batch.id)
        assert (found.state, found.released, found.frozen) == (BatchState.CANCELLED, 100, 0)
        assert await money(app) == (1000, 0, 0)
