"""Items that end without their provider's word: they are refunded, marked, counted, never charged by themselves, and
asked about by ``redrive batch reconcile``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redrive import App
from redrive.batches.batch_service import BatchService
from redrive.batches.metrics import fleet
from redrive.batches.remote.doctor import examine_remote
from redrive.batches.remote.overdue_items import end_overdue
from redrive.errors import RedriveError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Beat, ClaimRequest, Process
from redrive.kernel.reads import Query
from redrive.ledger.service import Ledger
from redrive.testing.conformance.harness import JUDGEMENT
from tests.batches_remote.conftest import ANN, Scripted, age, counts, made, money, rich, service, settled, work
from tests.batches_remote.test_faces import client_of
from tests.batches_remote.test_overdue import close_circuit, never, open_circuit
from tests.batches_remote.test_wait_reasons import _command, make_due
from tests.console.conftest import console, page, text_of
from tests.worker.conftest import drain

pytestmark = pytest.mark.anyio
LONG = {"polls": 100}  # a job that has not ended when its item has


async def ended_without_a_word(app: App, provider: Scripted, items: list[Any]) -> Any:
    """Returns a settled batch whose jobs were started, and whose items ended behind an open circuit."""
    provider.hold = True
    batch = await work(app, await made(app, items))
    await open_circuit(app)
    while (await counts(app, batch)).get("failed", 0) < len(items):
        await end_overdue(await app.store(), 0.0, never)
    provider.hold = False
    return await work(app, batch)


async def reconciled(app: App, batch: object = None) -> dict[str, Any]:
    """Has a worker ask; returns what came of it."""
    own = (await app.operator(ANN)).of(BatchService)
    begun = await own.reconcile(str(batch) if batch else None, "the provider is back")
    await drain(app, queues=app.queues())
    found = await own.reconciled(begun.task)
    assert found is not None
    return found


async def test_what_ran_all_the_same_is_found_and_not_charged(app: App, provider: Scripted) -> None:
    await rich(app)
    batch = await ended_without_a_word(app, provider, [{}, {"fail": "broken", "status": 500}, LONG])
    assert (batch.state, await money(app)) == ("failed", (1000, 0, 0))
    items = await (await service(app)).items(batch.id)
    assert [one.unknown for one in items] == [True] * 3

    # Every face says it.
    async with client_of(app) as client:
        shown = (await client.get(f"/api/batches/{batch.id}")).json()
        listed = (await client.get(f"/api/batches/{batch.id}/items")).json()["items"]
    assert shown["remote"]["unknown"] == 3 and all(one["remote"]["unknown"] for one in listed)
    assert "3 ended without the provider's word" in _command("batch", "show", str(batch.id), "--url", app.settings.url)
    async with console(app) as client:
        assert "3 items ended without the provider's word" in text_of(await page(client, f"/batches/{batch.id}"))
    store = await app.store()
    assert (await fleet(store, app.settings))["redrive_batches_unknown_items"] == {(): 3.0}
    assert "batches_unknown" in {one.code for one in await examine_remote(store, app.settings)}

    found = await reconciled(app, batch.id)
    assert {name: n for name, n in found.items() if n} == {
        "asked": 3, "succeeded": 1, "failed": 1, "stopped": 1, "worth": {"acme": 10}
    }  # fmt: skip
    assert await money(app) == (1000, 0, 0), "nothing is charged by itself"
    items = await (await service(app)).items(batch.id)
    assert [(one.unknown, one.said) for one in items] == [(False, "succeeded"), (False, "failed"), (True, "stopped")]
    assert items[0].result == {"did": f"{batch.id}-1:1"} and items[0].late and items[0].state == "failed"
    assert provider.cancelled == {f"{batch.id}-3:1"}, "nobody waits for it"

    # Once more: only what is still not known is asked about, and it has ended by now.
    found = await reconciled(app)
    assert (found["asked"], found["cancelled"], found["worth"]) == (1, 1, {})
    assert (await reconciled(app))["asked"] == 0
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok
    acts = await store.audit(AuditFilter(action="BATCH_RECONCILE"), limit=10)
    assert len(acts) == 3 and all(one.actor == "ann" for one in acts)


async def test_a_retry_of_what_is_unknown_looks_at_its_job(app: App, provider: Scripted) -> None:
    """It is not started a second time: its job is paid for, if it has succeeded."""
    await rich(app)
    batch = await ended_without_a_word(app, provider, [{}])
    await close_circuit(app)
    await (await service(app)).retry_failed(batch.id)
    batch = await settled(app, batch)
    assert (batch.round, batch.state, batch.captured) == (2, "completed", 10)
    assert dict(provider.starts) == {f"{batch.id}-1:1": 1}


async def test_what_cannot_be_asked_stays_unknown(app: App, provider: Scripted) -> None:
    await rich(app)
    provider.lost = True  # the start is done, and not answered
    batch = await work(app, await made(app, [{}]))
    await open_circuit(app)
    while not (await counts(app, batch)).get("failed"):
        await end_overdue(await app.store(), 0.0, never)
    batch = await work(app, batch)
    found = await reconciled(app, batch.id)
    assert (found["asked"], found["unanswered"]) == (1, 1)
    [item] = await (await service(app)).items(batch.id)
    assert item.unknown and item.job is None

    async def find(key: str) -> str | None:
        return key if key in provider.jobs else None

    provider.find = find  # type: ignore[attr-defined]
    found = await reconciled(app, batch.id)
    assert (found["succeeded"], found["worth"]) == (1, {"acme": 10})
    [item] = await (await service(app)).items(batch.id)
    assert (item.unknown, item.job) == (False, f"{batch.id}-1:1")


async def test_what_was_never_begun_is_known(app: App, provider: Scripted) -> None:
    await rich(app)
    await open_circuit(app)
    batch = await work(app, await made(app, [{}]))
    while not (await counts(app, batch)).get("failed"):
        await end_overdue(await app.store(), 0.0, never)
    [item] = await (await service(app)).items(batch.id)
    assert not item.unknown and not provider.starts


async def test_dead_workers_fail_no_item_and_time_does(app: App, provider: Scripted) -> None:
    """Ten workers die of it in a row: it goes on, alone; when its time is over, it ends as one that nobody knows."""
    await rich(app)
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    for _ in range(10):
        await make_due(app)
        await die_with_it(app)
    assert await counts(app, batch) == {"processing": 1}
    store = await app.store()
    [task] = await store.find(Query(kind="BATCH_ITEM_VIDEO", limit=5))
    assert await store.deaths([task.id]) == {task.id: 10}
    await end_overdue(store, 3600.0, never)
    assert await counts(app, batch) == {"processing": 1}
    await age(app, "batches_item", "started_at", 7200)
    await end_overdue(store, 3600.0, never)
    batch = await work(app, batch)
    [item] = await (await service(app)).items(batch.id)
    assert (item.state, item.error_code, item.unknown) == ("failed", "BATCH_MAX_ITEM_SECONDS", True)
    assert await money(app) == (1000, 0, 0)


async def test_what_an_operator_cancels_while_it_runs_is_unknown(app: App, provider: Scripted) -> None:
    await rich(app)
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    [task] = await (await app.store()).find(Query(kind="BATCH_ITEM_VIDEO", limit=5))
    await app.cancel(task.id)
    batch = await work(app, batch)
    [item] = await (await service(app)).items(batch.id)
    assert (item.state, item.unknown) == ("cancelled", True)
    provider.hold = False
    assert (await reconciled(app, batch.id))["succeeded"] == 1


async def test_only_jobs_are_reconciled_by_operators(app: App, provider: Scripted) -> None:
    await rich(app)
    async with client_of(app) as client:
        answer = await client.post("/api/batches/reconcile", json={"reason": "all of them"})
        assert answer.status_code == 202 and answer.json()["items"] == 0
    found = json.loads(_command("batch", "reconcile", "--wait", "0", "--json", "--url", app.settings.url))
    assert found["result"] is None and found["items"] == 0
    app.task("NOTHING")(_nothing)
    tasks = await app.batch([("NOTHING", {})])
    with pytest.raises(RedriveError, match="is of tasks"):
        await (await app.operator(ANN)).of(BatchService).reconcile(tasks.id)


async def _nothing(ctx: Any) -> None: ...


async def die_with_it(app: App) -> None:
    """Lets a worker claim what is due, and die; and has it recovered."""
    store = await app.store()
    process = Process("host", 1)
    await store.beat(Beat("dead", process, ("batches",), 4, 0, "0", 0.0, 1.5, 1.0, JUDGEMENT))
    cycle = await store.cycle(Commit(), ClaimRequest("dead", ("batches",), 1, 600.0))
    assert len(cycle.claimed) == 1
    assert await store.bury("dead", process) == 1
    worker = app.worker()
    await worker.prepare()
    await worker.duties["recover:batches"].run(store, worker.id, never)
