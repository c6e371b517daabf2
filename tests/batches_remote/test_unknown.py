"""Items that end without their provider's word: they are refunded, marked, counted, never charged by themselves, and
asked about by ``redrive batch reconcile``."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from redrive import App
from redrive.batches.batch import BatchPruned
from redrive.batches.batch_service import BatchService
from redrive.batches.doctor import examine_remote
from redrive.batches.metrics import fleet
from redrive.batches.names import SETTLE
from redrive.batches.remote import actions as remote_actions
from redrive.batches.remote import commits, reconcile, step_handlers
from redrive.batches.remote.application import RemoteBatches
from redrive.batches.remote.model import count_items, find_remote, items_to_retry
from redrive.batches.remote.reconcile import ask_provider, look_at_late_job
from redrive.batches.remote.upkeep import end_overdue
from redrive.batches.settings import BatchSettings
from redrive.errors import RedriveError
from redrive.feature import Applied
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import Beat, ClaimRequest, Gone, Process
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive.ledger.accounts import TooLittle
from redrive.ledger.service import Ledger
from redrive.ledger.settings import LedgerSettings
from redrive.ops.access import Caller, Role
from redrive.ops.retention import retention_of
from redrive.settings import load_settings
from redrive_kit.conformance.harness import JUDGEMENT
from tests.batches_remote.conftest import (
    ANN,
    QUICK,
    Scripted,
    age,
    close_circuit,
    command,
    counts,
    end_unheard,
    made,
    make_app,
    make_due,
    money,
    never,
    open_circuit,
    opened,
    rich,
    rows_left,
    run_sql,
    service,
    settled,
    work,
)
from tests.batches_remote.test_faces import client_of
from tests.batches_remote.test_told import events, keep_events
from tests.console.conftest import console, page, text_of
from tests.worker.conftest import drain

LONG = {"polls": 100}  # a job that has not ended when its item has


async def ended_without_a_word(app: App, provider: Scripted, items: list[Any]) -> Any:
    """Returns a settled batch whose jobs were started, and whose items ended behind an open circuit."""
    provider.hold = True
    batch = await work(app, await made(app, items))
    await end_unheard(app, batch, len(items))
    provider.hold = False
    return await work(app, batch)


async def reconciled(app: App, batch: object = None) -> dict[str, Any]:
    """Has a worker ask; returns what came of it."""
    own = (await app.operator(ANN)).of(BatchService)
    why = "the provider is back"
    begun = await (own.reconcile(str(batch), why) if batch else own.reconcile_all(why))
    assert begun.task is not None
    await drain(app, queues=app.queues())
    found = await own.reconciled(begun.task)
    assert found is not None
    return found


async def test_what_ran_all_the_same_is_found_and_not_charged(app: App, provider: Scripted) -> None:
    batch = await ended_without_a_word(app, provider, [{}, {"fail": "broken", "status": 500}, LONG])
    assert (batch.state, await money(app)) == ("failed", (1000, 0, 0))
    items = await (await service(app)).items(batch.id)
    assert [one.unknown for one in items] == [True] * 3

    # Every face says it.
    async with client_of(app) as client:
        shown = (await client.get(f"/api/batches/{batch.id}")).json()
        listed = (await client.get(f"/api/batches/{batch.id}/items")).json()["items"]
    assert shown["remote"]["unknown"] == 3 and all(one["remote"]["unknown"] for one in listed)
    assert "3 ended without the provider's word" in command("batch", "show", str(batch.id), "--url", app.settings.url)
    async with console(app) as client:
        assert "3 items ended without the provider's word" in text_of(await page(client, f"/batches/{batch.id}"))
    store = await app.store()
    assert (await fleet(store, app.settings))["redrive_batches_unknown_items"] == {(): 3.0}
    assert "batches_unknown" in {one.code for one in await examine_remote(store, app.settings)}

    found = await reconciled(app, batch.id)
    assert {name: n for name, n in found.items() if n} == {
        "asked": 3, "succeeded": 1, "failed": 1, "stopped": 1, "worth": {"acme": 10}, "ran": {str(batch.id): 1}
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


async def test_a_settlement_waits_for_a_last_look(store_url: str) -> None:
    """What nobody could ask about, and what nobody would run any more, is asked about before the money goes back."""
    app, provider = make_app(store_url, last_look_seconds=3600.0), Scripted()
    app.provider("video", provider)
    async with opened(app):
        provider.hold = True
        batch = await work(app, await made(app, [{}, {"fail": "broken"}, LONG, {}]))
        store, own = await app.store(), await service(app)
        [lost] = [one.task_id for one in await own.items(batch.id) if one.n == 4]
        await forget_task(app, str(lost))
        await end_unheard(app, batch, 3)
        provider.hold = False
        batch = await work(app, batch)
        assert (batch.state, await money(app)) == ("processing", (960, 40, 0)), "nobody may ask: it waits"
        [waits] = await own.waits_for(batch.id)
        assert waits.code == "last_look" and "the circuit of video is open" in waits.text
        reader = make_app(store_url, last_look_seconds=1.0)
        until = (await store.now()).replace(microsecond=0) + timedelta(seconds=3600)
        assert await (await service(reader)).waits_for(batch.id) == [waits], "by the settings of the worker"
        said = datetime.fromisoformat(waits.text.split(" at ")[-1].split(" UTC")[0]).replace(tzinfo=UTC)
        assert timedelta(0) <= until - said < timedelta(seconds=600)
        await reader.close()
        assert not provider.calls

        await close_circuit(app)
        await make_due(app, SETTLE)
        batch = await work(app, batch)
        assert (batch.state, await money(app)) == ("completed", (980, 0, 20))
        items = await own.items(batch.id)
        assert [(one.state, one.error_code, one.unknown, one.said) for one in items] == [
            ("completed", None, False, "succeeded"),
            ("failed", "PROVIDER_JOB_FAILED", False, "failed"),
            ("failed", "BATCH_MAX_ITEM_SECONDS", True, "running"),
            ("completed", None, False, "succeeded"),
        ]
        assert items[0].result == {"did": f"{batch.id}-1:1"} and not items[0].late
        assert max(provider.starts.values()) == 1, "nothing was started again"
        failed = await store.find(Query(states=(State.FAILED,), kind="BATCH_ITEM_VIDEO", limit=9))
        assert {one.id for one in failed} == {items[1].task_id, items[2].task_id}
        assert (await (await app.operator(ANN)).of(Ledger).verify()).ok
        assert len(await store.audit(AuditFilter(action="BATCH_LAST_LOOK"), limit=9)) == 1


async def test_a_last_look_that_comes_too_late_changes_nothing(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker stood still while it asked; another one has settled the batch meanwhile, and told the customer."""
    provider.hold = True
    batch = await work(app, await made(app, [{}, {"fail": "no"}]))
    store = await app.store()
    await end_unheard(app, batch, 2)
    await close_circuit(app)
    provider.hold = False

    async def overtaken(*asked: Any) -> Any:
        found = await ask_provider(*asked)
        now = await find_remote(store, batch.id)
        await store.apply(commits.settle(now, await count_items(store, now)))
        return found

    monkeypatch.setattr("redrive.batches.remote.reconcile.ask_provider", overtaken)
    batch = await work(app, batch)
    assert (batch.state, batch.captured, await money(app)) == ("failed", 0, (1000, 0, 0))
    assert [(one.state, one.unknown) for one in await (await service(app)).items(batch.id)] == [("failed", True)] * 2
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok
    assert not await store.audit(AuditFilter(action="BATCH_LAST_LOOK"), limit=9)
    assert (await reconciled(app, batch.id))["succeeded"] == 1, "it is asked about again"


async def test_an_answer_that_comes_too_late_changes_nothing(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a provider is asked, one item is started again, and of another it calls that it has ended."""
    batch = await ended_without_a_word(app, provider, [{"polls": 1}, {"polls": 1}])
    await close_circuit(app)
    store, own, poll = await app.store(), await service(app), provider.poll

    async def overtaken(ids: Any) -> Any:
        found = await poll(ids)
        monkeypatch.setattr(provider, "poll", poll)
        place = {"batch": str(batch.id), "n": 2, "round": 1}
        assert await look_at_late_job(app, store, place, None) == {"late": "succeeded"}
        assert (await own.retry_failed(batch.id, "again")).in_round == 1
        return found

    monkeypatch.setattr(provider, "poll", overtaken)
    await reconciled(app, batch.id)
    assert not provider.cancelled, "somebody waits for these jobs again"
    items = await own.items(batch.id)
    assert (items[0].state, items[1].state, items[1].said) == ("completed", "failed", "succeeded")
    assert (await own.charge(batch.id, "it ran"), await money(app)) == (1, (980, 0, 20))
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok


async def test_a_retried_item_whose_task_is_lost_is_found_by_the_key_of_its_start(store_url: str) -> None:
    """Also where it was retried by itself: that start has a key of its own."""
    app, provider = make_app(store_url, last_look_seconds=3600.0), Scripted()
    app.provider("video", provider)

    provider.can_find = True
    async with opened(app):
        batch = await work(app, await made(app, [{"fail": "bad luck", "once": True}, {"refuse": 429}]))
        own = await service(app)
        failed, waiting = await own.items(batch.id)
        assert (failed.state, failed.unknown, waiting.state) == ("failed", False, "pending")
        assert failed.task_id is not None and waiting.task_id is not None
        provider.lost = True  # the start is done, and not answered
        await app.retry(failed.task_id, actor="ann")
        await work(app, batch)
        assert set(provider.jobs) == {f"{batch.id}-1:1", f"{batch.id}-1:1:r1"}
        await forget_task(app, str(failed.task_id))
        await app.cancel(waiting.task_id)
        batch = await work(app, batch)
        found, _ = await own.items(batch.id)
        assert (found.state, found.said, found.job) == ("completed", "succeeded", f"{batch.id}-1:1:r1")
        assert (batch.captured, await money(app)) == (10, (990, 0, 10))


async def about_to_be_looked_at(app: App, provider: Scripted) -> Any:
    """Returns a batch whose item ended without a word, and that is settled next; its provider is there again."""
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    await end_unheard(app, batch)
    provider.hold = False
    await close_circuit(app)
    return batch


async def test_errors_of_ours_settle_nothing_without_a_last_look(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await about_to_be_looked_at(app, provider)

    async def breaks(*_: object) -> Any:
        raise RuntimeError("the disk is full")

    for module, name in ((step_handlers, "find_remote"), (step_handlers, "find_remote"), (reconcile, "ask_provider")):
        with monkeypatch.context() as broken:
            broken.setattr(module, name, breaks)
            await drain(app, queues=app.queues())
        assert await money(app) == (990, 10, 0)
        await make_due(app, SETTLE)
    batch = await work(app, batch)
    assert (batch.state, await money(app)) == ("completed", (990, 0, 10))


async def test_a_look_that_workers_die_of_is_not_repeated_for_ever(app: App, provider: Scripted) -> None:
    batch = await about_to_be_looked_at(app, provider)
    for _ in range(2):
        await die_with_it(app, "batches-settle")
        await make_due(app, SETTLE)
    batch = await work(app, batch)
    assert (batch.state, await money(app), provider.calls) == ("failed", (1000, 0, 0), [])
    assert [one.unknown for one in await (await service(app)).items(batch.id)] == [True]


async def test_what_ran_all_the_same_is_charged_once(app: App, provider: Scripted) -> None:
    batch = await ended_without_a_word(app, provider, [{}, {"fail": "broken"}, {}, {}])
    own, first = (await app.operator(ANN)).of(BatchService), str(batch.id)
    with pytest.raises(RedriveError, match=r"item 1 .* is failed, and no job of it is known to have run"):
        await own.charge(batch.id, [1], "it ran")
    await reconciled(app, batch.id)
    await keep_events(app)
    with pytest.raises(RedriveError, match="say why"):
        await own.charge(batch.id, [1])
    with pytest.raises(RedriveError, match=r"item 2 .*the provider said: failed"):
        await own.charge(batch.id, [2], "it ran")

    # Every face offers it, and does it.
    assert f"redrive batch charge {first}" in command("batch", "show", first, "--url", app.settings.url)
    async with console(app) as client:
        assert "Charge 30 credits for them" in text_of(await page(client, f"/batches/{first}"))
    async with client_of(app) as client:
        at = f"/api/batches/{first}/charge"
        dry = (await client.post(at, json={"dryRun": True})).json()
        assert (dry["matched"], dry["charge"], dry["batch"]["remote"]["uncharged"]) == (3, 30, 3)
        done = (await client.post(at, json={"items": [3], "reason": "invoice 7", "actor": "eve"})).json()
        assert (done["matched"], done["charge"], done["batch"]["state"]) == (1, 10, "completed")
    words = ("batch", "charge", first, "--item", "3", "--yes", "--reason", "again", "--url", app.settings.url)
    assert "nothing is to be charged" in command(*words), "of what was paid for nothing is"

    # Two at once, for all of it: each item is paid for once.
    bob = (await app.operator(Caller("bob", Role.OPERATOR))).of(BatchService)
    both = await asyncio.gather(*(one.charge(first, (), "it ran") for one in (own, bob, own, bob)))
    assert sorted(one.matched for one in both) == [0, 0, 0, 2]
    assert await money(app) == (970, 0, 30)
    found = await (await service(app)).show(first)
    assert (found.state, found.round, found.captured, found.released) == ("completed", 3, 30, 40)
    items = await (await service(app)).items(first)
    assert [(one.state, one.late) for one in items] == [
        ("completed", True),
        ("failed", True),
        *[("completed", True)] * 2,
    ]
    assert items[0].result == {"did": f"{first}-1:1"} and items[0].error_code is None

    # The customer is told of each charge, by an event of its own.
    assert [(one["event_id"], one["event_type"], one["data"]["captured"]) for one in (await events(app))[1:]] == [
        (f"batch-{first}-2", "batch.completed", 10),
        (f"batch-{first}-3", "batch.completed", 30),
    ]
    store = await app.store()
    acts = await store.audit(AuditFilter(action="BATCH_CHARGE"), limit=9)
    assert {(one.actor, one.reason) for one in acts} in (
        {("eve", "invoice 7"), (who, "it ran")} for who in ("ann", "bob")
    )
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok

    # What failed can be retried as before, and is no longer listed where it was charged.
    [task] = await store.find(Query(states=(State.FAILED,), kind="BATCH_ITEM_VIDEO", limit=9))
    assert task.id == items[1].task_id
    await close_circuit(app)
    await (await service(app)).retry_failed(first)
    batch = await settled(app, batch)
    assert (batch.round, batch.in_round, batch.captured) == (4, 1, 30)
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok
    late = retention_of(app.settings.with_values(history_days=0.000_000_1), app.features)
    for _ in range(3):
        await store.upkeep("prune", late)
    assert await rows_left(app) == (0, 0)
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok, "the books are right without its rows"


async def test_what_a_charge_is_about_is_read_at_once(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement for each of a thousand items would be a thousand."""
    batch = await ended_without_a_word(app, provider, [{}, {}, {}, {"fail": "no"}])
    await reconciled(app, batch.id)
    own, asked = await service(app), list[str]()
    assert await own.charge(batch.id, "it ran", [3]) == 1
    kind = type(await app.store())
    rows = kind.feature_rows

    async def counted(self: Any, feature: str, name: str, *values: Any) -> Any:
        asked.append(name)
        return await rows(self, feature, name, *values)

    monkeypatch.setattr(kind, "feature_rows", counted)
    assert [row["n"] for row in await own.ran(batch.id, [3, 2, 1, 2])] == [1, 2]
    assert asked == ["remote_by_id", "items_ran", "items_ended"], "those that are paid for already are looked at, too"
    for items, why in (([2, 4], r"item 4 .*the provider said: failed"), ([2, 99], "has no item 99")):
        with pytest.raises(RedriveError, match=why):
            await own.ran(batch.id, items)
    store, found = await app.store(), await own.show(batch.id)
    failed = commits.charge(
        found, [{"n": 4, "state": "failed", "task": None}], "ann", "x", await count_items(store, found)
    )
    with pytest.raises(RedriveError):  # whatever was read before
        await store.apply(failed)


async def prune_a_piece(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes two rows of each sort that are past their keep, which is nearly nothing, as one piece of retention."""
    for store in ("sqlite", "postgres"):
        monkeypatch.setattr(f"redrive.stores.{store}.upkeep.ROWS_PER_PIECE", 2)
    monkeypatch.setattr("redrive.stores.upkeep.MOST_PIECES_PER_PRUNE", 1)
    late = retention_of(app.settings.with_values(history_days=0.000_000_1), app.features)
    await (await app.store()).upkeep("prune", late)


async def test_a_batch_of_which_a_piece_is_pruned_is_left_alone(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of its items would say something else about its money than all of them did."""
    batch = await ended_without_a_word(app, provider, [{}, LONG, {}, {"fail": "no"}, {}])
    await reconciled(app, batch.id)
    own = await service(app)
    assert await own.charge(batch.id, "it ran", [1]) == 1
    await prune_a_piece(app, monkeypatch)
    left = await own.items(batch.id)
    assert 0 < len(left) < 5 and any(one.said == "succeeded" and one.state == "failed" for one in left)
    python, people = app.of(RemoteBatches), (await app.operator(ANN)).of(BatchService)
    at, first = {"reason": "late"}, str(batch.id)
    for act in (
        lambda: own.charge(batch.id, "late"),
        lambda: python.charge(batch.id, "late", [left[0].n]),
        lambda: people.charge(batch.id, dry_run=True),
        lambda: own.retry_failed(batch.id, "late"),
        lambda: people.retry_failed(batch.id, dry_run=True),
        lambda: own.reconcile(batch.id),
        lambda: own.accept_unknown(batch.id, "late"),
    ):
        with pytest.raises(BatchPruned, match="is being removed since") as refused:
            await act()
        assert "REDRIVE_HISTORY_DAYS" in str(refused.value.hint)
    async with client_of(app) as client:
        for act_name in ("charge", "retry-failed", "reconcile"):
            answer = await client.post(f"/api/batches/{first}/{act_name}", json=at)
            assert (answer.status_code, answer.json()["code"]) == (409, "BATCH_PRUNED"), act_name
        shown = (await client.get(f"/api/batches/{first}")).json()
    assert shown["remote"]["prunedAt"] is not None
    assert (shown["completed"], shown["failed"]) == (1, 4)
    assert (shown["remote"]["uncharged"], shown["remote"]["unknown"]) == (0, 0)
    assert "is completed, being removed: 1 completed, 4 failed" in command("batch", "show", first, "--url", app.url)
    async with console(app) as client:
        told = text_of(await page(client, f"/batches/{first}"))
        assert "being removed" in told and "There is nothing to do with it." in told and "5 of 5 have ended" in told
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok
    assert (await reconciled(app))["asked"] == 0, "nor with all others"
    for _ in range(5):
        await prune_a_piece(app, monkeypatch)
    assert await rows_left(app) == (0, 0)
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok


@pytest.mark.parametrize("act", ["charge", "retry_failed"])
async def test_nothing_lands_on_a_batch_that_is_pruned_at_the_same_moment(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    batch = await ended_without_a_word(app, provider, [{}, {"fail": "no"}, {}, {}])
    await reconciled(app, batch.id)
    store, own = await app.store(), await service(app)

    apply = store.apply

    async def land(commit: Commit) -> Applied:
        monkeypatch.setattr(store, "apply", apply)
        await prune_a_piece(app, monkeypatch)
        return await apply(commit)

    monkeypatch.setattr(store, "apply", land)
    with pytest.raises(BatchPruned):
        await getattr(own, act)(batch.id, "late")
    assert await money(app) == (1000, 0, 0)
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok


async def test_what_is_acted_on_at_the_same_moment_is_not_pruned(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention does not look at a batch as it was before: who changes it has it."""
    async with opened(make_app(postgres_url)) as app:
        app.provider("video", Scripted())
        batch = await work(app, await made(app, [{}, {"fail": "no"}]))
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            again = "update redrive.batches_remote set state = 'queued', round = 2, settled_at = null, ended_at = null"
            await other.execute(again)
            await prune_a_piece(app, monkeypatch)
        await prune_a_piece(app, monkeypatch)
        assert len(await (await service(app)).items(batch.id)) == 2


async def test_a_large_charge_waits_for_a_second_person(store_url: str) -> None:
    settings = load_settings(url=store_url, log_format="off").holding(BatchSettings(**QUICK))
    app, provider = App(settings=settings.holding(LedgerSettings(approvals_above=15))), Scripted()
    app.provider("video", provider)
    async with opened(app):
        batch = await ended_without_a_word(app, provider, [{}, {}, {}])
        await reconciled(app, batch.id)
        own = (await app.operator(ANN)).of(BatchService)
        assert (await own.charge(batch.id, [1], "one")).approval is None
        asked = await own.charge(batch.id, (), "the rest")
        assert asked.approval is not None and asked.matched == 2 and await money(app) == (990, 0, 10)
        bob = await app.operator(Caller("bob", Role.OPERATOR))
        await bob.approvals.approve(asked.approval.id, "fine")
        assert await money(app) == (970, 0, 30)
        acts = await (await app.store()).audit(AuditFilter(action="BATCH_CHARGE"), limit=9)
        assert [(one.actor, one.reason) for one in acts] == [("ann", "the rest"), ("ann", "one")]


async def test_a_charge_that_cannot_be_paid_is_refused(app: App, provider: Scripted) -> None:
    await rich(app, amount=20)
    batch = await ended_without_a_word(app, provider, [{}, {}])
    await reconciled(app, batch.id)
    await app.ledger.adjust("acme", -5, "less", reason="a test")
    with pytest.raises(TooLittle, match="acme has 15 to spend; this needs 20"):
        await app.of(RemoteBatches).charge(batch.id, "it ran")
    assert await money(app) == (15, 0, 0)
    assert (await app.of(RemoteBatches).charge(batch.id, "it ran", [2])).captured == 10


async def forget_task(app: App, task: str) -> None:
    """Takes a task away behind everybody's back, with its place in its join, as a key that somebody took would."""
    await run_sql(
        app,
        f"delete from redrive_task where id = '{task}'",
        f"delete from redrive.task where id = '{task}'",
    )
    await run_sql(
        app,
        "update redrive_join set total = total - 1",
        "update redrive.task_join set total = total - 1",
    )


async def test_a_retry_starts_nothing_again_that_ran_or_was_asked_to_end(app: App, provider: Scripted) -> None:
    """Nobody pays twice for one job: what succeeded, as the provider said, is charged; every face says so."""
    batch = await ended_without_a_word(app, provider, [{}, {"fail": "broken", "once": True}, LONG, {}])
    await reconciled(app, batch.id)
    await close_circuit(app)
    at, url = str(batch.id), app.settings.url
    ran, stopped = (
        f"redrive batch charge {at} --reason '…' charges for them",
        f"redrive batch reconcile {at} asks what became of it",
    )
    async with client_of(app) as client:
        dry = (await client.post(f"/api/batches/{at}/retry-failed", json={"dryRun": True})).json()
    assert (dry["matched"], dry["charge"], dry["skipped"]) == (1, 10, 3)
    assert [ran in dry["notes"][0], stopped in dry["notes"][1]] == [True, True]
    told = command("batch", "retry-failed", at, "--dry-run", "--url", url)
    assert "would retry 1 item, as a new charge of 10 credits" in told and ran in told and stopped in told
    assert "retry them, as a new charge of 10 credits" in command("batch", "show", at, "--url", url)
    async with console(app) as client:
        shown = text_of(await page(client, f"/batches/{at}"))
    assert "Start 1 failed item again" in shown and ran in shown and stopped in shown
    assert "Ask the provider again" in shown

    done = await (await app.operator(ANN)).of(BatchService).retry_failed(at, "the model is back")
    assert (done.matched, done.skipped, done.charge) == (1, 3, 10)
    batch = await settled(app, batch)
    assert (batch.round, batch.in_round, batch.captured) == (2, 1, 10)
    assert dict(provider.starts) == {**{f"{at}-{n}:1": 1 for n in (1, 2, 3, 4)}, f"{at}-2:2": 1}
    items = await (await service(app)).items(at)
    assert [(one.state, one.said) for one in items] == [
        ("failed", "succeeded"),
        ("completed", None),
        ("failed", "stopped"),
        ("failed", "succeeded"),
    ]

    # What ran is charged for; what was asked to end is started again when the provider has said that it did.
    with pytest.raises(RedriveError, match="can be started again") as refused:
        await (await service(app)).retry_failed(at)
    assert ran in str(refused.value.hint)
    assert (await app.of(RemoteBatches).charge(at, "it ran")).captured == 30
    assert (await reconciled(app, at))["cancelled"] == 1
    await (await service(app)).retry_failed(at)
    await work(app, batch)
    assert provider.starts[f"{at}-3:4"] == 1
    assert (await (await app.operator(ANN)).of(Ledger).verify()).ok


async def note(app: App, said: str, unknown: bool) -> None:
    """Writes down a provider's word about the first item."""
    sqlite, postgres = (f"set said = '{said}', unknown = {value} where n = 1" for value in (int(unknown), unknown))
    await run_sql(app, f"update redrive_batches_item {sqlite}", f"update redrive.batches_item {postgres}")


async def test_a_word_that_goes_while_a_retry_lands_is_heeded(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job was to be asked to end when the retry landed, and could not be: the same as before is retried."""
    batch = await ended_without_a_word(app, provider, [{}, {}])
    store = await app.store()
    apply = store.apply

    async def land(commit: Commit) -> Applied:
        nonlocal tried
        tried += 1
        if tried > 1:
            return await apply(commit)
        await note(app, "stopped", True)
        try:
            return await apply(commit)
        finally:
            await note(app, "running", True)

    tried = 0
    monkeypatch.setattr(store, "apply", land)
    found = await (await service(app)).retry_failed(batch.id)
    assert (tried, found.round, found.in_round, found.frozen) == (2, 2, 2, 20)


async def test_a_word_that_comes_while_a_retry_lands_is_heeded(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await ended_without_a_word(app, provider, [{}, {}])
    await close_circuit(app)
    looked = 0

    async def overtaken(store: Any, which: Any) -> Any:
        nonlocal looked
        looked, found = looked + 1, await items_to_retry(store, which)
        if looked == 1:
            await note(app, "succeeded", False)
        return found

    monkeypatch.setattr(remote_actions, "items_to_retry", overtaken)
    found = await (await service(app)).retry_failed(batch.id)
    assert (found.round, found.in_round, found.frozen) == (2, 1, 10)
    assert await counts(app, batch) == {"failed": 1, "pending": 1}


async def test_what_was_answered_or_accepted_is_not_warned_of(app: App, provider: Scripted) -> None:
    await keep_events(app)
    batch = await ended_without_a_word(app, provider, [LONG])
    store, url, at = await app.store(), app.settings.url, str(batch.id)
    assert [one["data"]["unknown"] for one in await events(app)] == [1], "the customer is told"
    [found] = await examine_remote(store, app.settings)
    assert f"redrive batch reconcile {at} --accept" in str(found.fix)
    assert (await reconciled(app, at))["stopped"] == 1
    assert await examine_remote(store, app.settings) == []
    assert (await fleet(store, app.settings))["redrive_batches_unknown_items"] == {(): 0.0}

    # A start that was lost at a provider that cannot be asked: people accept it.
    await close_circuit(app)
    provider.lost = True
    lost = await work(app, await made(app, [{}]))
    await end_unheard(app, lost)
    await work(app, lost)
    assert (await reconciled(app, lost.id))["unanswered"] == 1
    assert len(await examine_remote(store, app.settings)) == 1
    async with client_of(app) as client:
        refused = await client.post(f"/api/batches/{lost.id}/reconcile", json={"accept": True})
        assert refused.status_code == 422 and "say why" in refused.text
        refused = await client.post("/api/batches/reconcile", json={"accept": True, "reason": "x"})
        assert refused.status_code == 422 and "one batch" in refused.text
    words = ("batch", "reconcile", str(lost.id), "--accept", "--reason", "asked by mail", "--url", url)
    assert "1 item stays unknown, as accepted" in command(*words)
    assert await examine_remote(store, app.settings) == []
    [act] = await store.audit(AuditFilter(action="BATCH_ACCEPT"), limit=9)
    assert (act.reason, act.target) == ("asked by mail", f"batch:{lost.id}")
    [item] = await (await service(app)).items(lost.id)
    assert (item.unknown, item.said) == (True, "accepted")
    assert "unknown: accepted" in command("batch", "items", str(lost.id), "--url", url)
    async with console(app) as client:
        assert "accepted" in text_of(await page(client, f"/batches/{lost.id}"))

    # A retry repeats the start with the same key, as before.
    provider.lost = False
    await close_circuit(app)
    await (await service(app)).retry_failed(lost.id)
    await settled(app, lost)
    assert set(provider.starts) == {f"{at}-1:1", f"{lost.id}-1:1"}


async def test_a_retry_of_what_is_unknown_looks_at_its_job(app: App, provider: Scripted) -> None:
    """It is not started a second time: its job is paid for, if it has succeeded."""
    batch = await ended_without_a_word(app, provider, [{}])
    await close_circuit(app)
    await (await service(app)).retry_failed(batch.id)
    batch = await settled(app, batch)
    assert (batch.round, batch.state, batch.captured) == (2, "completed", 10)
    assert dict(provider.starts) == {f"{batch.id}-1:1": 1}


async def test_what_cannot_be_asked_stays_unknown(app: App, provider: Scripted) -> None:
    provider.lost = True  # the start is done, and not answered
    batch = await work(app, await made(app, [{}]))
    await end_unheard(app, batch)
    batch = await work(app, batch)
    found = await reconciled(app, batch.id)
    assert (found["asked"], found["unanswered"]) == (1, 1)
    [item] = await (await service(app)).items(batch.id)
    assert item.unknown and item.job is None

    provider.can_find = True
    found = await reconciled(app, batch.id)
    assert (found["succeeded"], found["worth"]) == (1, {"acme": 10})
    [item] = await (await service(app)).items(batch.id)
    assert (item.unknown, item.job) == (False, f"{batch.id}-1:1")


async def test_what_was_never_begun_is_known(app: App, provider: Scripted) -> None:
    await open_circuit(app)
    batch = await work(app, await made(app, [{}]))
    await end_unheard(app, batch)
    [item] = await (await service(app)).items(batch.id)
    assert not item.unknown and not provider.starts


async def test_dead_workers_fail_no_item_and_time_does(app: App, provider: Scripted) -> None:
    """Ten workers die of it in a row: it goes on, alone; when its time is over, it ends as one that nobody knows."""
    provider.hold = True
    batch = await work(app, await made(app, [{}]))
    for _ in range(10):
        await make_due(app)
        await die_with_it(app)
    assert await counts(app, batch) == {"processing": 1}
    store = await app.store()
    [task] = await store.find(Query(kind="BATCH_ITEM_VIDEO", limit=5))
    assert (await store.statuses([task.id]))[task.id].deaths == 10
    await end_overdue(store, 3600.0, never)
    assert await counts(app, batch) == {"processing": 1}
    await age(app, "batches_item", "started_at", 7200)
    await end_overdue(store, 3600.0, never)
    batch = await work(app, batch)
    [item] = await (await service(app)).items(batch.id)
    assert (item.state, item.error_code, item.unknown) == ("failed", "BATCH_MAX_ITEM_SECONDS", True)
    assert await money(app) == (1000, 0, 0)


async def test_what_an_operator_cancels_while_it_runs_is_unknown(app: App, provider: Scripted) -> None:
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
    async with client_of(app) as client:
        answer = await client.post("/api/batches/reconcile", json={"reason": "all of them"})
        assert answer.status_code == 202 and answer.json()["items"] == 0
    found = json.loads(command("batch", "reconcile", "--wait", "0", "--json", "--url", app.settings.url))
    assert found["result"] is None and found["items"] == 0
    app.task("NOTHING")(_nothing)
    tasks = await app.batch([("NOTHING", {})])
    with pytest.raises(RedriveError, match="is of tasks"):
        await (await app.operator(ANN)).of(BatchService).reconcile(tasks.id)


async def _nothing(ctx: Any) -> None: ...


async def die_with_it(app: App, queue: str = "batches") -> None:
    """Lets a worker claim what is due, and die; and has it recovered."""
    store = await app.store()
    process = Process("host", 1)
    await store.beat(Beat("dead", process, (queue,), 4, 0, "0", 0.0, 1.5, 1.0, JUDGEMENT))
    cycle = await store.cycle(Commit(), ClaimRequest("dead", (queue,), 1, 600.0))
    assert len(cycle.claimed) == 1
    assert (await store.end_leases(Gone("dead", process)))["dead"].tasks == 1
    worker = app.worker()
    await worker.prepare()
    for duty in ("recover", "recover:batches"):
        await worker.duties[duty].run(store, worker.id, never)
