"""Remote batches are cancelled, and what failed is started again as a new charge."""

from __future__ import annotations

import asyncio

import pytest

from redrive import App, State
from redrive.batches.batch import BatchConflict
from redrive.batches.names import BatchState
from redrive.batches.remote.application import RemoteBatches
from redrive.errors import InvalidInput
from redrive.kernel.reads import Query
from redrive.ledger.accounts import TooLittle
from redrive.ledger.service import Ledger
from redrive.remote import ProviderError
from tests.batches_remote.conftest import ANN, Scripted, counts, made, make_app, money, rich, service, settled, work
from tests.worker.conftest import until


async def test_one_that_was_not_begun_is_cancelled_at_once(app: App, provider: Scripted) -> None:
    batch = await made(app, [1, 2, 3])
    batch = await (await service(app)).cancel(batch.id, "a mistake")
    assert (batch.state, batch.reason, batch.cancelled_by) == (BatchState.CANCELLED, "a mistake", "ann")
    batch = await work(app, batch)
    assert (batch.state, await counts(app, batch)) == (BatchState.CANCELLED, {"cancelled": 3})
    assert (await money(app), provider.starts) == ((1000, 0, 0), {})
    with pytest.raises(BatchConflict, match="is cancelled"):
        await (await service(app)).cancel(batch.id)


async def test_what_runs_is_polled_to_its_end_and_the_rest_released(app: App, provider: Scripted) -> None:
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
    batch = await made(app, [*[{}] * 3, *[{"refuse": 503}] * 3, *[{}] * 4])
    provider.hold = True  # three run, and three wait to be started
    await work(app, batch)
    batch = await (await service(app)).cancel(batch.id)
    batch = await work(app, batch)
    assert (batch.state, batch.frozen, batch.released) == (BatchState.PROCESSING, 60, 40)
    assert (await money(app), await counts(app, batch)) == ((940, 60, 0), {"processing": 3, "cancelled": 7})


async def test_what_a_provider_that_is_down_did_not_start_is_released_at_once(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}] * 10)
    provider.down = ProviderError("away", status_code=503, retry_after="3600")  # three wait to be started
    await work(app, batch)
    batch = await (await service(app)).cancel(batch.id)
    batch = await work(app, batch)
    assert (batch.state, batch.frozen, batch.released) == (BatchState.CANCELLED, 0, 100)
    assert (await money(app), await counts(app, batch)) == ((1000, 0, 0), {"cancelled": 10})


@pytest.mark.parametrize("stubborn", [True, False])
async def test_a_start_whose_answer_was_lost_is_learned_of_before_its_batch_ends(
    app: App, provider: Scripted, stubborn: bool
) -> None:
    provider.lost = True
    batch = await work(app, await made(app, [{"stubborn": stubborn}]))
    await (await service(app)).cancel(batch.id)
    assert (await work(app, batch)).frozen == 10
    [item] = await (await app.store()).find(Query(kind="BATCH_ITEM_VIDEO", limit=10))
    assert item.attempt_count == 0
    provider.lost = False
    batch = await settled(app, batch)
    job = f"{batch.id}-1:1"
    assert (provider.starts.keys(), provider.cancelled) == ({job}, {job})
    assert (batch.state, batch.captured, batch.released) == (
        (BatchState.CANCELLED, 10, 0) if stubborn else (BatchState.CANCELLED, 0, 10)
    )


async def test_a_start_that_a_stopping_worker_cut_short_is_learned_of_too(app: App, provider: Scripted) -> None:
    batch, provider.silent = await made(app, [{}]), True
    worker = asyncio.create_task(app.worker(queues=",".join(app.queues())).run())
    await until(provider.has_started)
    worker.cancel()
    await asyncio.sleep(0)
    worker.cancel()  # and no grace: the start is interrupted
    await asyncio.wait([worker])
    [item] = await (await app.store()).find(Query(kind="BATCH_ITEM_VIDEO", limit=10))
    assert (item.state, item.attempt_count, item.memo) == (State.QUEUED, 0, {"unsure": True})
    await (await service(app)).cancel(batch.id)
    provider.silent = False
    batch = await settled(app, batch)
    job = f"{batch.id}-1:1"
    assert (provider.starts, provider.cancelled) == ({job: 2}, {job})  # one key, so one job
    assert (batch.state, batch.captured, batch.released) == (BatchState.CANCELLED, 0, 10)


async def test_what_failed_is_started_again_as_a_new_charge(app: App, provider: Scripted) -> None:
    batch = await made(app, [{}, {"fail": "bad luck", "once": True}, {}, {"fail": "always"}])
    with pytest.raises(BatchConflict, match="is queued"):
        await (await service(app)).retry_failed(batch.id)
    batch = await work(app, batch)
    assert await money(app) == (980, 0, 20)
    with pytest.raises(InvalidInput, match="the reason is empty"):
        await (await service(app)).retry_failed(batch.id, " ")
    await (await service(app)).retry_failed(batch.id, "try again")
    batch = await work(app, batch)
    assert (batch.state, batch.round, batch.captured, batch.released) == (BatchState.COMPLETED, 2, 30, 30)
    assert await money(app) == (970, 0, 30)
    assert await counts(app, batch) == {"completed": 3, "failed": 1}
    # Another key: the provider does not give the old failed job back.
    assert {f"{batch.id}-2:1", f"{batch.id}-2:2"} <= set(provider.starts)
    assert f"{batch.id}-1:2" not in provider.starts
    assert await events(app) == 2


async def test_a_retry_that_cannot_be_paid_is_refused_and_changes_nothing(app: App, provider: Scripted) -> None:
    await rich(app, amount=25)
    batch = await work(app, await made(app, [{}, {"fail": "x", "once": True}]))
    assert await money(app) == (15, 0, 10)
    await made(app, [{}], price=15, key="spends it")
    batch = await work(app, batch)
    own = await service(app)
    before = await own.items(batch.id)
    with pytest.raises(TooLittle, match="acme has 0 to spend; this needs 10"):
        await own.retry_failed(batch.id)
    assert (await work(app, batch), await own.items(batch.id)) == (batch, before)
    assert (batch.state, before[1].error_code, len(await app.failed.list())) == ("completed", "PROVIDER_JOB_FAILED", 1)
    assert (await money(app), await events(app)) == ((0, 0, 25), 2)


async def test_a_retry_freezes_its_price_and_a_cancel_before_it_begins_gives_it_back(
    app: App, provider: Scripted
) -> None:
    batch = await work(app, await made(app, [{}, {"fail": "x", "once": True}]))
    batch = await (await service(app)).retry_failed(batch.id)
    assert (batch.state, batch.frozen, await money(app)) == (BatchState.QUEUED, 10, (980, 10, 10))
    batch = await (await service(app)).cancel(batch.id)
    assert (batch.state, batch.frozen, batch.released) == (BatchState.CANCELLED, 0, 20)
    await work(app, batch)
    assert await money(app) == (990, 0, 10)
    verdict = await (await app.operator(ANN)).of(Ledger).verify()
    assert verdict.ok, verdict.problems


async def events(app: App) -> int:
    """Returns how many times customers were told something."""
    return len(await (await app.store()).find(Query(kind="WEBHOOK_EVENT", limit=10)))


async def test_an_item_that_is_retried_before_the_end_is_started_anew(store_url: str) -> None:
    app, provider = make_app(store_url, max_poll_count=100_000), Scripted()  # the second is polled all the while
    app.provider("video", provider)
    await app.migrate()
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
    await app.close()


async def _started(provider: Scripted, key: str) -> bool:
    return key in provider.starts
