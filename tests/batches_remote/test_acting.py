"""Remote batches are cancelled, and what failed is started again as a new charge."""

from __future__ import annotations

import pytest

from redrive import App, State
from redrive.batches.batch import BatchConflict, BatchState
from redrive.batches.remote.application import RemoteBatches
from redrive.kernel.reads import Query
from redrive.remote import ProviderError
from tests.batches_remote.conftest import Scripted, counts, made, money, rich, service, settled, work
from tests.worker.conftest import until

pytestmark = pytest.mark.anyio


async def test_one_that_was_not_begun_is_cancelled_at_once(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await made(app, [1, 2, 3])
    batch = await (await service(app)).cancel(batch.id, "a mistake")
    assert (batch.state, batch.reason, batch.cancelled_by) == (BatchState.CANCELLED, "a mistake", "ann")
    batch = await work(app, batch)
    assert (batch.state, await counts(app, batch)) == (BatchState.CANCELLED, {"cancelled": 3})
    assert (await money(app), provider.starts) == ((1000, 0, 0), {})
    with pytest.raises(BatchConflict, match="is cancelled"):
        await (await service(app)).cancel(batch.id)


async def test_what_runs_is_polled_to_its_end_and_the_rest_released(app: App, provider: Scripted) -> None:
    await rich(app)
    # The first ends although it is cancelled; the second is cancelled by the provider; others wait for their turn.
    batch = await made(app, [{"polls": 10, "stubborn": True}, {"polls": 1000}, *[{"refuse": 503}] * 3, *[{}] * 15])
    provider.hold = True
    await work(app, batch)
    assert await money(app) == (800, 200, 0)
    await app.of(RemoteBatches).cancel(batch.id, "enough")
    provider.hold = False
    batch = await settled(app, batch)
    assert (batch.state, batch.captured, batch.released) == (BatchState.CANCELLED, 10, 190)
    assert await money(app) == (990, 0, 10)
    assert await counts(app, batch) == {"completed": 1, "cancelled": 19}
    assert len(provider.starts) == 2


async def test_unstarted_items_are_released_before_the_end(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await made(app, [{}] * 10)
    provider.down = ProviderError("away", status_code=503)  # three wait to be started
    await work(app, batch)
    batch = await (await service(app)).cancel(batch.id)
    batch = await work(app, batch)
    assert (batch.state, batch.frozen, batch.released) == (BatchState.PROCESSING, 30, 70)
    assert await money(app) == (970, 30, 0)


async def test_what_failed_is_started_again_as_a_new_charge(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await made(app, [{}, {"fail": "bad luck", "once": True}, {}, {"fail": "always"}])
    with pytest.raises(BatchConflict, match="is queued"):
        await (await service(app)).retry_failed(batch.id)
    batch = await work(app, batch)
    assert await money(app) == (980, 0, 20)
    await (await service(app)).retry_failed(batch.id, "try again")
    batch = await work(app, batch)
    assert (batch.state, batch.round, batch.captured, batch.released) == (BatchState.COMPLETED, 2, 30, 30)
    assert await money(app) == (970, 0, 30)
    assert await counts(app, batch) == {"completed": 3, "failed": 1}
    # Another key: the provider does not give the old failed job back.
    assert {f"{batch.id}-2:1", f"{batch.id}-2:2"} <= set(provider.starts)
    assert f"{batch.id}-1:2" not in provider.starts
    store = await app.store()
    assert len(await store.find(Query(kind="WEBHOOK_EVENT", limit=10))) == 2


async def test_a_retry_that_cannot_be_paid_fails_and_keeps_what_was_earned(app: App, provider: Scripted) -> None:
    await rich(app, amount=25)
    batch = await work(app, await made(app, [{}, {"fail": "x", "once": True}]))
    assert await money(app) == (15, 0, 10)
    await made(app, [{}], price=15, key="spends it")
    await work(app, batch)
    await (await service(app)).retry_failed(batch.id)
    batch = await work(app, batch)
    assert batch.state is BatchState.FAILED and "has 0" in str(batch.reason)
    assert (await counts(app, batch), await money(app)) == ({"completed": 1, "failed": 1}, (0, 0, 25))


async def test_an_item_of_a_settled_batch_is_not_started_by_a_retry_of_its_task(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await work(app, await made(app, [{}, {"fail": "bad luck"}]))
    (failed,) = await app.failed.list()
    await app.retry(failed.id, actor="ann")
    batch = await work(app, batch)
    task = await app.get(failed.id)
    assert task is not None and task.state is State.CANCELLED
    assert (await counts(app, batch), await money(app)) == ({"completed": 1, "failed": 1}, (990, 0, 10))
    assert len(provider.starts) == 2
    assert not any(item.late for item in await (await service(app)).items(batch.id))
    await (await service(app)).retry_failed(batch.id)  # this is the way
    assert (await work(app, batch)).round == 2
    assert f"{batch.id}-2:2" in provider.starts


async def test_an_item_that_is_retried_before_the_end_is_started_anew(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await made(app, [{"fail": "bad luck", "once": True}, {"polls": 5}])
    provider.hold = True
    await work(app, batch)
    provider.hold = False
    provider.jobs[f"{batch.id}-2:1"] = {"polls": 1_000_000, "progress": 3}
    async with app.worker(queues=",".join(app.queues())):
        failed = await until(app.failed.list)
        await app.retry(failed[0].id, actor="ann")
        await until(lambda: _started(provider, f"{batch.id}-1:1:r1"))
        provider.jobs[f"{batch.id}-2:1"] = {}
    batch = await settled(app, batch)
    assert (await counts(app, batch), await money(app)) == ({"completed": 2}, (980, 0, 20))


async def _started(provider: Scripted, key: str) -> bool:
    return key in provider.starts
