"""A remote batch from its making to its settlement, with its money."""

from __future__ import annotations

from typing import Any

from redrive import App
from redrive.batches.batch_input import BatchRequest
from redrive.batches.doctor import examine_remote as examine
from redrive.batches.names import BatchState
from redrive.kernel.audit import AuditFilter
from redrive.kernel.reads import Query
from redrive.remote import ProviderError
from tests.batches_remote.conftest import Scripted, counts, made, make_app, money, rich, service, settled, work


async def test_what_succeeds_is_paid_for_and_the_rest_goes_back(app: App, provider: Scripted) -> None:
    items: list[Any] = [{"polls": n % 3} for n in range(8)] + [{"fail": "model exploded"}, {"refuse": 400}]
    batch = await made(app, items)
    assert (batch.state, batch.items) == (BatchState.QUEUED, 10)
    assert await money(app) == (1000, 0, 0)

    batch = await work(app, batch)
    assert (batch.state, batch.frozen, batch.captured, batch.released) == (BatchState.COMPLETED, 0, 80, 20)
    assert await counts(app, batch) == {"completed": 8, "failed": 2}
    assert await money(app) == (920, 0, 80)
    # Each was started once, and looked at in few calls.
    assert set(provider.starts.values()) == {1} and len(provider.starts) == 9
    assert max(provider.calls) > 1

    own = await service(app)
    found = await own.items(batch.id)
    assert [item.n for item in found] == [*range(1, 11)]
    assert found[0].result == {"did": f"{batch.id}-1:1"} and found[2].poll_count == 3
    assert (found[8].error_code, found[8].failure_type) == ("PROVIDER_JOB_FAILED", "model_error")
    assert [found[n].poll_count for n in (0, 8, 9)] == [1, 1, 0] and found[8].last_poll_at is not None
    assert (found[9].error_code, found[9].failure_type) == ("PROVIDER_START_REFUSED", "param_error")
    progress = await own.progress(batch.id)
    assert progress.by_type == {"model_error": 1, "param_error": 1}
    assert [item.n for item in await own.items(batch.id, states=["failed"], failure_type="param_error")] == [10]

    said = await (await app.store()).audit(AuditFilter(action="BATCH_SETTLED"), limit=10)
    assert [row.after["captured"] for row in said] == [80]
    events = await (await app.store()).find(Query(kind="WEBHOOK_EVENT", limit=10))
    assert len(events) == 1


async def test_none_that_succeeded_is_a_failed_batch(app: App, provider: Scripted) -> None:
    batch = await work(app, await made(app, [{"fail": "timeout"}] * 4))
    assert (batch.state, batch.released) == (BatchState.FAILED, 40)
    assert await money(app) == (1000, 0, 0)
    assert (await (await service(app)).progress(batch.id)).by_type == {"timeout": 4}


async def test_too_little_money_fails_it_before_anything_starts(app: App, provider: Scripted) -> None:
    await rich(app, amount=39)
    batch = await work(app, await made(app, [1, 2, 3, 4]))
    assert batch.state is BatchState.FAILED and batch.reason == "account acme has 39, and 4 items at 10 need 40"
    assert await counts(app, batch) == {"failed": 4}
    assert (await money(app), provider.starts) == ((39, 0, 0), {})


async def test_only_as_many_as_the_lanes_wait_to_be_started(app: App, provider: Scripted) -> None:
    provider.down = ProviderError("no answer", status_code=503)
    batch = await work(app, await made(app, [{}] * 20))
    store = await app.store()
    waiting = await store.find(Query(kind="BATCH_ITEM_VIDEO", limit=100))
    assert (len(waiting), batch.state, await money(app)) == (3, BatchState.PROCESSING, (800, 200, 0))
    assert all(task.attempt_count == 0 for task in waiting)


async def test_a_price_of_nothing_needs_no_account(app: App, provider: Scripted) -> None:
    own = await service(app)
    batch = await work(app, await own.create([1, None, "x", [2]], BatchRequest(provider="video")))
    assert (batch.state, await counts(app, batch)) == (BatchState.COMPLETED, {"completed": 4})


async def test_one_that_does_not_move_is_told_of_by_doctor(store_url: str) -> None:
    app = make_app(store_url, stuck_hours=0.0)
    await app.migrate()
    provider = Scripted()
    app.provider("video", provider)
    await rich(app)
    provider.down = ProviderError("away", status_code=503)
    batch = await work(app, await made(app, [{}] * 4, name="Trailers"))
    (told,) = await examine(await app.store(), app.settings)
    assert told.code == "batches_stuck" and "40 of account acme are frozen for it" in told.text
    provider.down = None
    await settled(app, batch)
    assert await examine(await app.store(), app.settings) == []
    await app.close()


async def test_batches_are_begun_and_settled_before_items_of_others(app: App, provider: Scripted) -> None:
    """A worker drains its first queue first: behind the items of all others a new batch would wait for their end."""
    own = [queue for queue in app.queues() if queue.startswith("batches")]
    assert own == ["batches-dispatch", "batches-settle", "batches"]
