"""Money cannot be stuck or settled on somebody's word: settlements that are forged, cancelled, erased or never made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redrive import App
from redrive.batches.doctor import examine_remote as examine
from redrive.batches.names import FEATURE, SETTLE, BatchState
from redrive.batches.remote import commits
from redrive.batches.remote.model import RemoteBatch, count_items, find_remote
from redrive.batches.remote.reconcile import accept
from redrive.batches.remote.upkeep import bring_steps
from redrive.errors import InvalidTransition, RedriveError
from redrive.ids import new_id
from redrive.kernel.classify import FailureType
from redrive.kernel.commit import Commit
from redrive.kernel.erase import Erase
from redrive.kernel.failure import failure
from redrive.kernel.machine import DeadReason, Event, Transition
from redrive.kernel.reads import Query
from redrive.kernel.task import NewTask, State
from redrive.ledger.service import FreezeHeld, Ledger
from redrive.ledger.verify import verify
from redrive.ops.access import Caller, Role
from redrive.ops.operations.erase_subject import count_personal
from tests.batches_remote.conftest import Scripted, counts, made, money, never, run_sql, service, settled, work
from tests.worker.conftest import drain

ROOT = Caller("root", Role.ADMIN)
BEFORE_THE_END = ["batches-dispatch", "batches"]  # all queues but that of settlements


async def running(app: App, provider: Scripted, items: int = 3, **more: Any) -> RemoteBatch:
    """Returns a batch whose first three items run at the provider."""
    provider.hold = True
    return await work(app, await made(app, [{}] * items, **more))


async def ended(app: App, provider: Scripted, batch: RemoteBatch) -> None:
    """Lets all items end; nobody settles the batch."""
    provider.hold = False
    store = await app.store()
    while (await count_items(store, batch)).ended < batch.items:
        await drain(app, queues=BEFORE_THE_END)


async def forget_steps(app: App, kind: str) -> int:
    """Cancels all tasks of a kind that wait, as an operator can; returns how many."""
    store = await app.store()
    found = [task for task in await store.find(Query(kind=kind, limit=10)) if task.state is State.QUEUED]
    await store.apply(Commit(transitions=[Transition(task.id, Event.CANCEL, State.CANCELLED) for task in found]))
    return len(found)


async def sound(app: App) -> bool:
    return (await verify(await app.store(), app.features)).ok


async def test_a_settlement_that_comes_too_early_moves_no_money(app: App, provider: Scripted) -> None:
    batch = await running(app, provider)
    store = await app.store()
    await store.apply(Commit(enqueues=[commits.next_step(SETTLE, batch)]))
    await drain(app, queues=["batches-settle"])
    assert await money(app) == (970, 30, 0)
    with pytest.raises(RedriveError):  # also where somebody has looked before, and an item began anew since
        await store.apply(commits.settle(batch, await count_items(store, batch)))
    provider.hold = False
    assert (await settled(app, batch)).captured == 30
    assert await money(app) == (970, 0, 30)


async def test_another_number_of_successes_than_was_counted_is_not_settled(app: App, provider: Scripted) -> None:
    batch = await running(app, provider)
    await ended(app, provider, batch)
    store = await app.store()
    seen = await count_items(store, batch)
    with pytest.raises(RedriveError):
        await store.apply(commits.settle(batch, replace(seen, in_round={**seen.in_round, "completed": 2})))
    assert await money(app) == (970, 30, 0)


@pytest.mark.parametrize("step", ["BATCH_DISPATCH", "BATCH_SETTLE"])
async def test_a_step_whose_task_was_cancelled_is_brought_again(app: App, provider: Scripted, step: str) -> None:
    batch = await made(app, [{}] * 5)
    if step == "BATCH_SETTLE":
        await ended(app, provider, batch)
    assert await forget_steps(app, step) == 1
    store = await app.store()
    for _ in range(3):  # one is enough
        await bring_steps(store, never)
    assert len([task for task in await store.find(Query(kind=step, limit=10)) if task.state is State.QUEUED]) == 1
    assert (await settled(app, batch)).captured == 50
    assert await sound(app)


async def test_what_is_on_its_way_is_left_alone(app: App, provider: Scripted) -> None:
    batch = await running(app, provider, 5)
    store = await app.store()
    before = (await find_remote(store, batch.id)).version
    await bring_steps(store, never)
    assert (await find_remote(store, batch.id)).version == before
    await ended(app, provider, batch)
    await bring_steps(store, never)
    assert (await find_remote(store, batch.id)).version == before


async def test_a_failed_settlement_is_named_by_doctor_at_once(app: App, provider: Scripted) -> None:
    batch = await running(app, provider)
    await ended(app, provider, batch)
    store = await app.store()
    [task] = await store.find(Query(kind=SETTLE, limit=10))
    why = failure("X", "handler_failed", "no", type=FailureType.UNKNOWN, where="here", what="no", retryable=False)
    move = Transition(
        task.id, Event.REJECT, State.FAILED, failure=why, dead=DeadReason.NON_RETRYABLE, sources=(State.QUEUED,)
    )
    await store.apply(Commit(transitions=[move]))
    await bring_steps(store, never)
    assert len(await store.find(Query(kind=SETTLE, limit=10))) == 1, "an operator looks at it first"
    [finding] = await examine(store, app.settings)
    assert f"redrive retry {task.id}" in str(finding.fix) and "30 of account acme" in finding.text


async def test_an_item_that_nobody_will_run_is_failed_and_its_money_goes_back(
    app: App, provider: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    batch = await made(app, [{}] * 5)
    taken = NewTask(new_id(), "OTHER", "elsewhere", None, idempotency_key=f"redrive:batch:{batch.id}:1:4", own=True)
    await (await app.store()).apply(Commit(enqueues=[taken]))
    batch = await settled(app, batch)
    assert await counts(app, batch) == {"completed": 4, "failed": 1}
    [lost] = [one for one in await (await service(app)).items(batch.id) if one.state == "failed"]
    assert (lost.n, lost.error_code) == (4, "BATCH_ITEM_LOST")
    assert await money(app) == (960, 0, 40)
    told = {one.kind for one in caplog.records if getattr(one, "event", "") == "reaction.key_conflict"}
    assert told == {"BATCH_ITEM_VIDEO"}, "it is said at once, too"
    findings = await (await app.operator(ROOT)).health.examine()
    [finding] = [one for one in findings if one.code == "reaction_key_conflict"]
    assert "could not add a task BATCH_ITEM_VIDEO" in finding.text and str(taken.id) in finding.text
    assert f"redrive show {taken.id}" in str(finding.fix)
    assert await sound(app)


async def test_a_scope_with_running_batches_is_not_erased(app: App, provider: Scripted) -> None:
    batch = await running(app, provider, scope="bob")
    erasures = (await app.operator(ROOT)).erasures
    with pytest.raises(InvalidTransition, match=str(batch.id)) as refused:
        await erasures.begin("bob", reason="a ticket")
    assert f"redrive batch cancel {batch.id}" in str(refused.value.hint)
    provider.hold = False
    await settled(app, batch)
    assert (await erasures.begin("bob", reason="a ticket")).operation is not None


async def test_an_erasure_that_meets_a_running_batch_leaves_it_its_money(app: App, provider: Scripted) -> None:
    batch = await running(app, provider, 5, scope="bob")
    store = await app.store()
    await store.apply(Commit(erase=Erase("erased:1", scope="bob", callbacks="bob", rows=1000)))
    assert (await find_remote(store, batch.id)).scope == "bob", "it needs what it holds"
    provider.hold = False
    assert (await settled(app, batch)).captured == 50
    await store.apply(Commit(erase=Erase("erased:1", scope="bob", rows=1000)))
    assert (await find_remote(store, batch.id)).scope == "erased:1"


async def test_an_erasure_of_a_task_leaves_a_batch_that_is_not_settled_its_items(app: App, provider: Scripted) -> None:
    batch = await running(app, provider)
    await ended(app, provider, batch)
    store = await app.store()
    lanes = [task.id for task in await store.find(Query((State.COMPLETED,), kind="BATCH_ITEM_VIDEO", limit=10))]
    assert lanes
    await store.apply(Commit(erase=Erase("erased:1", tuple(lanes))))
    assert (await count_personal(store, None, lanes))["batches_rows"] == 3, (
        "they are told of, and erased when it is settled"
    )
    assert (await settled(app, batch)).captured == 30
    await store.apply(Commit(erase=Erase("erased:1", tuple(lanes))))
    assert (await count_personal(store, None, lanes))["batches_rows"] == 0


async def test_erasing_leaves_the_codes_by_which_items_are_accepted_and_charged(app: App, provider: Scripted) -> None:
    """What a provider said of a job is a code: without it what was accepted is warned of again, and nobody can charge
    what ran."""
    batch = await settled(app, await made(app, [{"fail": "no"}] * 3, scope="bob"))
    ran = "item set unknown = (n < 3), said = case when n = 3 then 'succeeded' end"
    await run_sql(app, f"update redrive_batches_{ran}", f"update redrive.batches_{ran}")
    store = await app.store()
    await store.apply(accept(batch, 2, "ann", "nobody will know"))

    async def look() -> tuple[int, int]:
        [unknown] = await store.sql.feature_rows(FEATURE, "unknown_items", None)
        return unknown["n"], len(await store.sql.feature_rows(FEATURE, "items_ran", str(batch.id), 10, None))

    assert await look() == (0, 1)
    await store.apply(Commit(erase=Erase("erased:1", scope="bob", rows=1000)))
    assert (await find_remote(store, batch.id)).scope == "erased:1"
    assert await look() == (0, 1)


async def test_items_whose_payload_is_gone_are_not_started(app: App, provider: Scripted) -> None:
    batch = await made(app, [None, {"n": 1}])
    await drain(app, queues=["batches-dispatch"])
    change = "item set payload = null where n = 2"
    await run_sql(app, f"update redrive_batches_{change}", f"update redrive.batches_{change}")
    batch = await settled(app, batch)
    assert (batch.state, await counts(app, batch)) == (BatchState.COMPLETED, {"completed": 1, "cancelled": 1})
    assert list(provider.jobs.values()) == [None]
    assert await money(app) == (990, 0, 10)


async def test_money_is_not_released_by_hand_from_under_a_round_that_begins(
    app: App, provider: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody looks, and the failed items are started again before the release lands."""
    batch = await settled(app, await made(app, [{"fail": "no", "once": True}] * 3))
    ledger = (await app.operator(ROOT)).of(Ledger)
    looked = ledger._not_held

    async def then_retried(reference: str) -> None:
        await looked(reference)
        monkeypatch.setattr(ledger, "_not_held", looked)
        await (await service(app)).retry_failed(batch.id)

    monkeypatch.setattr(ledger, "_not_held", then_retried)
    with pytest.raises(FreezeHeld, match="settles this money itself"):
        await ledger.release("acme", f"batch:{batch.id}", "by hand", 10)
    assert await money(app) == (970, 30, 0)
    assert (await settled(app, batch)).captured == 30
    assert await sound(app)
