"""Bulk operations: piece by piece, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from redrive.errors import ChangedMeanwhile, InvalidInput, InvalidTransition, NotAllowed
from redrive.kernel import operation as kernel
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import (
    Action,
    Canary,
    Cancel,
    Erasure,
    Forget,
    Operation,
    Purge,
    Retry,
    Status,
    Then,
    Work,
)
from redrive.kernel.outcome import Completed, Released
from redrive.kernel.ports.store import Heartbeat, Store
from redrive.kernel.records import Record
from redrive.kernel.task import State
from redrive.ops import actions, approvals
from redrive.ops.allowance import UNRESTRICTED, Rule
from redrive.ops.audit_rows import done_of_matched
from redrive.ops.operations import lifecycle, plans, selection
from redrive.ops.operations.drive import drive, step
from redrive.ops.operations.lifecycle import How
from redrive.ops.operations.outcome import retried
from redrive_kit.conformance.harness import LEASE, TERMINAL, Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.making import OTHER, fail, run
from tests.ops.test_operator import operator

A = FailureFilter(kind="A")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "TASKS_PER_PIECE", 4)


async def begin(store: Store, action: Action = Action.RETRY, which: FailureFilter = A, **how: Any) -> Operation:
    plan = how.pop("plan", None)
    operation, approval = await lifecycle.begin(
        store, action, which, actor="ann", rule=UNRESTRICTED, reason="mended", plan=plan, how=How(**how)
    )
    assert approval is None
    return operation


async def to_the_end(store: Store, operation: Operation) -> Operation:
    while await step(store, operation.id, "w1") is not None:
        pass
    return await lifecycle.show(store, operation.id)


async def test_everything_that_matches_once_and_nothing_else(harness: Harness) -> None:
    ids, others = await fail(harness, 10), await fail(harness, 3, OTHER, "B")
    operation = await begin(harness.store)
    assert operation.total == 10
    late = await fail(harness, 2)
    ended = await to_the_end(harness.store, operation)
    assert (ended.status, ended.done, ended.skipped) == (Status.COMPLETED, 10, 0)
    assert {(await harness.task(task_id)).replay_count for task_id in ids} == {1}
    assert {(await harness.task(task_id)).replay_count for task_id in others + late} == {0}
    rows = await harness.audit(bulk_id=operation.id)
    assert [row.action for row in rows if not row.action.endswith("ITEM")] == [
        "TASK_RETRY_BATCH_SUMMARY",
        "OPERATION_START",
    ]
    assert {row.task_id for row in rows if row.action.endswith("ITEM")} == set(ids)
    assert rows[0].after["done"] == 10 and rows[0].after["filter"] == {"kind": "A"}
    await harness.check_totals()


async def test_what_fails_again_is_not_retried_again(harness: Harness) -> None:
    ids = await fail(harness, 6)
    operation = await begin(harness.store)
    await step(harness.store, operation.id, "w1")
    await run(harness, TERMINAL)
    ended = await to_the_end(harness.store, operation)
    assert ended.done == 6
    assert {(await harness.task(task_id)).replay_count for task_id in ids} == {1}


async def test_what_became_of_its_tasks_is_known(harness: Harness) -> None:
    """That all are queued again says nothing: the same would be said of a fix that mends nothing."""
    ids = await fail(harness, 5)
    ended = await to_the_end(harness.store, await begin(harness.store))
    waiting = await retried(harness.store, ended)
    assert waiting is not None and waiting.text == "5 retried: 5 wait to run"
    assert waiting.waits is not None and waiting.waits.code == "no_worker"
    await harness.tick("w1")
    served = await retried(harness.store, ended)
    assert served is not None and served.waits is None, "its turn comes"
    await run(harness, TERMINAL, 1)
    await run(harness, Completed(), 3)
    await harness.claim(1)
    became = await retried(harness.store, ended)
    assert became is not None and became.text == "5 retried: 3 completed, 1 failed again, 1 still runs"
    assert became.again == tuple([task_id for task_id in ids if (await harness.task(task_id)).state is State.FAILED])


async def test_retries_that_their_caller_carries_out_say_what_became_of_their_tasks(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As operations that workers carry out do: by ids, by a filter, by a plan, and piece by piece."""
    monkeypatch.setattr(selection, "MOST_RETRIED_AT_ONCE", 3)
    own, store = operator(harness), harness.store

    async def outcome(operation: str | None) -> tuple[Status, int, int, str]:
        found = await own.operations.get(operation or "")
        told = await own.operations.retried(found)
        assert told is not None and await step(store, found.id, "w1") is None, "no worker goes on with it"
        return found.status, found.total, found.skipped, told.text

    ids = await fail(harness, 2)
    named = await own.failures.retry([*ids, UUID(int=7)], "mended")
    await run(harness, TERMINAL, 1)
    await run(harness, Completed())
    told = "2 retried: 1 completed, 1 failed again"
    assert await outcome(named.operation) == (Status.COMPLETED, 3, 1, told)
    for planned in (False, True):
        how: dict[str, Any] = {"which": A, "limit": 2}
        if planned:
            how = {"plan": (await own.failures.preview(A)).plan}
        retry = await own.failures.retry_matching(**how)
        await run(harness, TERMINAL)
        assert await outcome(retry.bulk_id) == (Status.COMPLETED, 1, 0, "1 retried: 1 failed again")
    await fail(harness, 7)
    done = await own.failures.replay(await own.failures.select(A, 7), reason="mended")
    await run(harness, TERMINAL, 3)
    assert (done.done, len(done.bulk_ids)) == (7, 1)
    assert await outcome(done.bulk_ids[0]) == (Status.COMPLETED, 7, 0, "7 retried: 3 failed again, 4 wait to run")
    listed = [Operation.of(one).id for one in await own.operations.records()]
    assert listed[0] == done.bulk_ids[0] and len(listed) == 4


async def test_what_became_of_a_retry_is_counted_with_the_moves(harness: Harness) -> None:
    """Whatever turns its tasks take, and whoever retries them once more meanwhile."""
    own, store = operator(harness), harness.store
    first = await fail(harness, 9)
    ended = await to_the_end(store, await begin(store))

    async def now() -> dict[str, int]:
        for _ in range(2):
            became = await retried(store, ended)
            assert became is not None
            await store.upkeep("fold")
        return {name: n for name, n in became.numbers.items() if n}

    assert await now() == {"retried": 9, "waiting": 9}
    claimed = {task.id: task for task in await harness.claim(7)}
    assert await now() == {"retried": 9, "running": 7, "waiting": 2}
    done, failed, other, again, back, stops, _ = claimed.values()
    await harness.settle(done, Completed())
    for task in (failed, again):
        await harness.settle(task, TERMINAL)
    await harness.settle(other, OTHER)
    await harness.settle(back, Released("the worker ends"))
    await own.tasks.cancel([stops.id])
    await harness.settle(stops, Completed())
    assert await now() == {"retried": 9, "completed": 2, "failed_again": 3, "running": 1, "waiting": 3}
    waiting = next(task_id for task_id in first if task_id not in claimed)
    await own.tasks.pause([waiting])
    await own.tasks.cancel([waiting])
    await own.failures.forget([failed.id])
    counts = {"retried": 9, "completed": 2, "failed_again": 3, "cancelled": 1, "running": 1, "waiting": 2}
    assert await now() == counts
    second = await to_the_end(store, await begin(store, which=FailureFilter(ids=(again.id,))))
    await own.tasks.retry(other.id)
    became = await retried(store, ended)
    assert became is not None and (became.failed_again, became.retried_since) == (3, 2)
    assert {one.code: one.n for one in became.causes} == {TERMINAL.code: 2, OTHER.code: 1}
    await harness.advance(LEASE + 1)
    await harness.recover()
    await harness.advance(3600)
    await harness.tick()
    await run(harness, Completed())
    # The lease that ran out was that of its only attempt.
    assert await now() == {"retried": 9, "completed": 4, "failed_again": 4, "cancelled": 1, "retried_since": 2}
    last = await retried(store, second)
    assert last is not None and last.text == "1 retried: 1 completed"


async def test_what_a_process_of_an_earlier_version_did_is_said_to_be_uncounted(harness: Harness) -> None:
    await fail(harness, 3)
    ended = await to_the_end(harness.store, await begin(harness.store))
    await run(harness, Completed(), 1)
    table = "redrive_retry_total" if isinstance(harness, SqliteHarness) else "redrive.retry_total"
    await harness.store.upkeep("fold")
    # It ran one, and counted nothing.
    await run(harness, Completed(), 1)
    await harness.store.upkeep("fold")
    await harness.sql(f"update {table} set n = n - 1 where outcome = 'completed'")
    became = await retried(harness.store, ended)
    assert became is not None and became.waiting == 2, "one of them is there: more is not known yet"
    await run(harness, Completed(), 1)
    became = await retried(harness.store, ended)
    assert became is not None
    assert became.text == "3 retried: 2 completed, 1 not counted, by a process of an earlier version"


async def test_the_worker_with_old_code_is_one_of_their_queues(harness: Harness) -> None:
    await harness.store.tick(Heartbeat("w-other", "host", 1, ("other",), 4, 0, "0", {}))
    await harness.advance(5)
    await harness.tick("w1")
    await fail(harness, 2)
    ended = await to_the_end(harness.store, await begin(harness.store))
    await run(harness, TERMINAL)
    became = await retried(harness.store, ended)
    assert became is not None and became.oldest is not None and became.oldest.id == "w1"


async def test_only_retries_are_judged_by_what_became_of_their_tasks(harness: Harness) -> None:
    await fail(harness, 1)
    ended = await to_the_end(harness.store, await begin(harness.store, Action.FORGET))
    assert await retried(harness.store, ended) is None


async def test_one_that_is_over_says_what_to_do_instead_of_resuming(harness: Harness) -> None:
    await fail(harness, 1)
    ended = await to_the_end(harness.store, await begin(harness.store))
    with pytest.raises(InvalidTransition, match="what is left of it needs a new one: redrive retry"):
        await lifecycle.resume(harness.store, ended.id, actor="ann")


async def test_what_somebody_else_retried_is_skipped_and_said(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await fail(harness, 4)
    operation = await begin(harness.store)
    apply = harness.store.apply

    async def late(commit: Any) -> Any:
        monkeypatch.undo()
        await actions.retry(harness.store, ids[:1], actor="bob")
        return await apply(commit)

    monkeypatch.setattr(harness.store, "apply", late)
    await step(harness.store, operation.id, "w1")
    ended = await to_the_end(harness.store, operation)
    assert (ended.done, ended.skipped) == (3, 1)
    (row,) = await harness.audit(action="TASK_RETRY_BATCH_SKIPPED")
    assert (row.task_id, row.bulk_id) == (ids[0], operation.id)


async def test_a_driver_that_died_is_followed_by_another(harness: Harness) -> None:
    ids = await fail(harness, 14)
    operation = await begin(harness.store)
    await step(harness.store, operation.id, "w1")
    assert await step(harness.store, operation.id, "w2") is None  # the first one is at it
    await harness.advance(5)
    assert await step(harness.store, operation.id, "w2") == 0.0
    assert await step(harness.store, operation.id, "w2") == 0.0
    assert (await to_the_end(harness.store, operation)).done == 12  # w1 is told that w2 drives now
    while await step(harness.store, operation.id, "w2") is not None:
        pass
    assert (await lifecycle.show(harness.store, operation.id)).done == 14
    assert {(await harness.task(task_id)).replay_count for task_id in ids} == {1}


async def test_two_drivers_at_the_same_moment(harness: Harness) -> None:
    ids = await fail(harness, 12)
    operation = await begin(harness.store)
    other = await harness.another()
    await other.open()
    answers = await asyncio.gather(
        step(harness.store, operation.id, "w1"), step(other, operation.id, "w2"), return_exceptions=True
    )
    assert all(answer in (0.0, None) or isinstance(answer, ChangedMeanwhile) for answer in answers)
    retried = [task_id for task_id in ids if (await harness.task(task_id)).replay_count]
    assert len(retried) == (await lifecycle.show(harness.store, operation.id)).done == 4


async def test_paused_resumed_cancelled(harness: Harness) -> None:
    await fail(harness, 12)
    operation = await begin(harness.store)
    await step(harness.store, operation.id, "w1")
    paused = await lifecycle.pause(harness.store, operation.id, actor="bob", reason="too fast")
    assert paused.status is Status.PAUSED
    assert await step(harness.store, operation.id, "w1") is None
    with pytest.raises(InvalidTransition, match="is paused"):
        await lifecycle.pause(harness.store, operation.id, actor="bob")
    await lifecycle.resume(harness.store, operation.id, actor="bob")
    await step(harness.store, operation.id, "w1")
    ended = await lifecycle.cancel(harness.store, operation.id, actor="bob", reason="enough")
    assert (ended.status, ended.done, ended.note) == (Status.CANCELLED, 8, "by bob: enough")
    assert await harness.store.count_failed(A) == 4
    actions_taken = [row.action for row in await harness.audit(actor="bob")]
    assert actions_taken == ["OPERATION_CANCEL", "OPERATION_RESUME", "OPERATION_PAUSE"]
    with pytest.raises(InvalidTransition, match="is cancelled"):
        await lifecycle.resume(harness.store, operation.id, actor="bob")


async def test_the_rate_is_kept(harness: Harness) -> None:
    await fail(harness, 6)
    operation = await begin(harness.store, rate=4.0)
    assert await step(harness.store, operation.id, "w1") == 0.5  # two tasks, half a second
    early = await step(harness.store, operation.id, "w1")
    assert early is not None and 0 < early <= 0.5
    assert (await lifecycle.show(harness.store, operation.id)).done == 2
    await harness.advance(0.5)
    await step(harness.store, operation.id, "w1")
    assert (await lifecycle.show(harness.store, operation.id)).done == 4


class TestCanary:
    async def test_the_rest_follows_when_they_succeed(self, harness: Harness) -> None:
        ids = await fail(harness, 10)
        operation = await begin(harness.store, canary=Canary(3))
        await step(harness.store, operation.id, "w1")
        assert (await lifecycle.show(harness.store, operation.id)).done == 3
        assert await step(harness.store, operation.id, "w1") == 1.0  # they have not run yet
        assert sorted(await run(harness)) == sorted(ids[:3])
        ended = await to_the_end(harness.store, operation)
        assert (ended.status, ended.done) == (Status.COMPLETED, 10)

    async def test_the_rest_waits_for_somebody(self, harness: Harness) -> None:
        await fail(harness, 5)
        operation = await begin(harness.store, canary=Canary(2, then=Then.WAIT))
        assert await step(harness.store, operation.id, "w1") == 0.0
        await run(harness, count=2)
        waiting = await to_the_end(harness.store, operation)
        assert (waiting.status, waiting.done) == (Status.PAUSED, 2)
        assert waiting.note == "2 of the first 2 succeeded: resume it for the others, or cancel it"
        rows = await harness.audit(bulk_id=operation.id)
        assert [(row.actor, row.after) for row in rows if row.action == "OPERATION_PAUSE"] == [
            ("ann", {"status": "paused", "note": waiting.note})
        ]
        await lifecycle.resume(harness.store, operation.id, actor="bob")
        ended = await to_the_end(harness.store, operation)
        assert (ended.status, ended.done, ended.note) == (Status.COMPLETED, 5, None)

    async def test_nobody_is_waited_for_where_nothing_is_left(self, harness: Harness) -> None:
        await fail(harness, 2)
        operation = await begin(harness.store, canary=Canary(2, then=Then.WAIT))
        await step(harness.store, operation.id, "w1")
        await run(harness, count=2)
        assert (await to_the_end(harness.store, operation)).status is Status.COMPLETED

    async def test_the_rest_stays_when_they_fail(self, harness: Harness) -> None:
        await fail(harness, 10)
        operation = await begin(harness.store, canary=Canary(3, 50.0))
        await step(harness.store, operation.id, "w1")
        first, second, third = await harness.claim(3)
        await harness.settle(first, TERMINAL)
        assert await step(harness.store, operation.id, "w1") == 1.0  # two can still make it
        await harness.settle(second, TERMINAL)
        assert await step(harness.store, operation.id, "w1") is None
        ended = await lifecycle.show(harness.store, operation.id)
        assert ended.status is Status.STOPPED
        assert ended.note is not None
        assert ended.note.startswith("2 of the first 3 failed again with TASK_PRECONDITION_FAILED: task ")
        await harness.settle(third, TERMINAL)
        assert await harness.store.count_failed(A) == 10

    async def test_it_stops_when_the_same_failure_returns(self, harness: Harness) -> None:
        await fail(harness, 12)
        operation = await begin(harness.store, stop_on_return=True, rate=1_000_000)
        await step(harness.store, operation.id, "w1")
        await run(harness, OTHER)  # another failure than before
        await step(harness.store, operation.id, "w1")
        await run(harness, TERMINAL)
        assert await step(harness.store, operation.id, "w1") is None
        ended = await lifecycle.show(harness.store, operation.id)
        assert (ended.status, ended.done) == (Status.STOPPED, 8)
        assert ended.note is not None and ended.note.startswith("the same failure is back, TASK_PRE")


async def test_forgetting_all_of_a_kind(harness: Harness) -> None:
    ids = await fail(harness, 6)
    ended = await to_the_end(harness.store, await begin(harness.store, Action.FORGET))
    assert ended.done == 6
    assert {await harness.state(task_id) for task_id in ids} == {State.CANCELLED}
    assert len(await harness.audit(action="TASK_FORGET_BATCH_ITEM")) == 6
    await harness.check_totals()


async def test_a_plan_as_an_operation_says_of_each_task_what_became_of_it(harness: Harness) -> None:
    ids = await fail(harness, 6)
    page = await plans.preview(harness.store, A, bind="ann")
    late = await fail(harness, 2)
    await actions.retry(harness.store, ids[1:3], actor="bob")  # one waits, one is failed by another failure
    await harness.settle((await harness.claim(1))[0], OTHER)
    operation = await begin(harness.store, which=FailureFilter(), plan=page.plan)
    ended = await to_the_end(harness.store, operation)
    assert (ended.status, ended.done, ended.skipped, ended.gone) == (Status.COMPLETED, 4, 2, 0)
    rows = await harness.audit(bulk_id=operation.id, action="TASK_RETRY_BATCH_SKIPPED")
    assert {row.task_id: row.reason for row in rows} == {
        ids[1]: "it is failed, but no longer by the failure that was meant",
        ids[2]: "it is queued, not failed or cancelled",
    }
    assert {(await harness.task(task_id)).replay_count for task_id in late} == {0}


async def test_a_plan_that_is_no_longer_kept(harness: Harness) -> None:
    """Its operation waited for approval for long: the filter and the boundary are in the operation."""
    ids = await fail(harness, 6)
    page = await plans.preview(harness.store, A, bind="ann")
    operation = await begin(harness.store, which=FailureFilter(), plan=page.plan)
    await harness.advance(86_400 + 1)
    await harness.store.upkeep("prune")
    assert (await to_the_end(harness.store, operation)).done == len(ids)


async def test_one_call_of_the_duty_does_it_all(harness: Harness) -> None:
    await fail(harness, 10)
    first, second = await begin(harness.store), await begin(harness.store, which=FailureFilter(kind="B"))
    await drive(harness.store, "w1", lambda: False)
    assert (await lifecycle.show(harness.store, first.id)).done == 10
    assert (await lifecycle.show(harness.store, second.id)).status is Status.COMPLETED


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rate": 0.0}, "rate must be from 0.001"),
        ({"rate": float("nan")}, "rate must be from 0.001"),
        ({"canary": Canary(0)}, "canary must be a whole number"),
        ({"canary": Canary(5, 101.0)}, "percentage"),
        ({"action": Action.FORGET, "canary": Canary(5)}, "makes sense for a retry"),
        ({"action": Action.PURGE, "which": FailureFilter(scope="s")}, "by queue and kind"),
    ],
)
async def test_what_makes_no_sense_is_refused(harness: Harness, how: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        await begin(harness.store, **how)
    assert await lifecycle.list_operations(harness.store) == []


async def interrupted(harness: Harness, monkeypatch: pytest.MonkeyPatch, meanwhile: Any) -> None:
    """The next commit is held up until something else has happened."""
    apply = harness.store.apply

    async def late(commit: Any) -> Any:
        monkeypatch.setattr(harness.store, "apply", apply)
        await meanwhile()
        return await apply(commit)

    monkeypatch.setattr(harness.store, "apply", late)


class TestFoundByReview:
    async def test_a_purge_leaves_a_fresh_failure_alone(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_id = await harness.enqueue()
        operation = await begin(harness.store, Action.PURGE)

        async def meanwhile() -> None:
            assert await harness.settle(await harness.claim_one(), TERMINAL)

        await interrupted(harness, monkeypatch, meanwhile)
        await step(harness.store, operation.id, "w1")
        assert await harness.state(task_id) is State.FAILED
        (row,) = await harness.audit(action="TASK_PURGE_BATCH_SKIPPED")
        assert row.reason == "it is failed, not waiting"

    async def test_a_purge_is_about_what_waited_when_it_was_decided(self, harness: Harness) -> None:
        failures = await fail(harness, 3)
        others = await harness.enqueue_many(2, "B")
        running = await harness.running("A", queue="other")
        waiting = await harness.enqueue()
        operation = await begin(harness.store, Action.PURGE)
        await harness.advance(1)
        await actions.retry(harness.store, failures, actor="bob")
        ended = await to_the_end(harness.store, operation)
        assert ended.done == 1 and await harness.state(waiting) is State.CANCELLED
        assert {await harness.state(task_id) for task_id in failures + others} == {State.QUEUED}
        assert await harness.state(running.id) is State.RUNNING

    async def test_exactly_enough_canaries(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel, "TASKS_PER_PIECE", 50)
        await fail(harness, 25)
        operation = await begin(harness.store, canary=Canary(20, 55.0))  # 55 / 100 * 20 is a little more than 11
        await step(harness.store, operation.id, "w1")
        claimed = await harness.claim(20)
        for number, task in enumerate(claimed):
            await harness.settle(task, Completed() if number < 11 else OTHER)
        assert (await to_the_end(harness.store, operation)).status is Status.COMPLETED

    async def test_canaries_that_others_dealt_with_are_none(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ids = await fail(harness, 6)
        operation = await begin(harness.store, canary=Canary(2))

        async def meanwhile() -> None:
            await actions.forget(harness.store, ids[:2], actor="bob")

        await interrupted(harness, monkeypatch, meanwhile)
        assert await step(harness.store, operation.id, "w1") == 0.0
        assert await step(harness.store, operation.id, "w1") == 0.0
        found = await lifecycle.show(harness.store, operation.id)
        assert found.canary is not None and found.canary.ids == (ids[2], ids[3]) and found.testing
        await run(harness)
        ended = await to_the_end(harness.store, operation)
        assert (ended.status, ended.done, ended.skipped) == (Status.COMPLETED, 4, 2)

    async def test_canaries_keep_to_the_rate(self, harness: Harness) -> None:
        await fail(harness, 8)
        operation = await begin(harness.store, rate=4.0, canary=Canary(5))
        for done in (2, 4, 5):
            await step(harness.store, operation.id, "w1")
            assert (await lifecycle.show(harness.store, operation.id)).done == done
            await harness.advance(1)
        assert (await lifecycle.show(harness.store, operation.id)).testing

    async def test_fewer_tasks_than_canaries(self, harness: Harness) -> None:
        await fail(harness, 2)
        operation = await begin(harness.store, canary=Canary(10))
        await step(harness.store, operation.id, "w1")
        assert await step(harness.store, operation.id, "w1") == 0.0
        await run(harness)
        assert (await to_the_end(harness.store, operation)).status is Status.COMPLETED
        nothing = await begin(harness.store, which=FailureFilter(kind="nobody"), canary=Canary(10))
        assert (await to_the_end(harness.store, nothing)).status is Status.COMPLETED

    async def test_canaries_that_were_pruned_say_nothing(self, harness: Harness) -> None:
        await fail(harness, 3)
        operation = await begin(harness.store, canary=Canary(2))
        await step(harness.store, operation.id, "w1")
        await run(harness)
        history = "redrive_history" if "sqlite" in type(harness).__module__ else "redrive.history"
        await harness.sql(f"delete from {history}")
        assert (await to_the_end(harness.store, operation)).status is Status.COMPLETED

    async def test_slow_operations_do_not_keep_others(self, harness: Harness) -> None:
        await fail(harness, 3)
        await fail(harness, 1, OTHER, "B")
        old = await begin(harness.store)
        for _ in range(25):
            await begin(harness.store, which=FailureFilter(kind="B"), rate=0.001)
        driving = asyncio.create_task(drive(harness.store, "w1", lambda: False))
        while (await lifecycle.show(harness.store, old.id)).status is Status.RUNNING:
            await asyncio.sleep(0.01)
        driving.cancel()

    async def test_pausing_what_moves(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        await fail(harness, 12)
        operation = await begin(harness.store)

        async def meanwhile() -> None:
            await step(harness.store, operation.id, "w1")

        await interrupted(harness, monkeypatch, meanwhile)
        paused = await lifecycle.pause(harness.store, operation.id, actor="bob")
        assert (paused.status, paused.done) == (Status.PAUSED, 4)
        assert len(await harness.audit(action="OPERATION_PAUSE")) == 1

    async def test_a_return_behind_others(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(kernel, "TASKS_PER_PIECE", 30)
        await fail(harness, 40)
        operation = await begin(harness.store, stop_on_return=True, rate=1_000_000)
        await step(harness.store, operation.id, "w1")
        claimed = await harness.claim(30)
        for number, task in enumerate(claimed):
            await harness.settle(task, TERMINAL if number == 0 else OTHER)
        assert await step(harness.store, operation.id, "w1") is None
        assert (await lifecycle.show(harness.store, operation.id)).status is Status.STOPPED

    async def test_the_sum_adds_up(self, harness: Harness) -> None:
        ids = await fail(harness, 6)
        operation = await begin(harness.store)
        await actions.retry(harness.store, ids[:5], actor="bob")
        await to_the_end(harness.store, operation)
        (row,) = await harness.audit(action="TASK_RETRY_BATCH_SUMMARY")
        assert (row.after["matched"], row.after["done"], row.after["skipped"], row.after["gone"]) == (6, 1, 0, 5)

    async def test_an_unreadable_value_keeps_nothing_up(self, harness: Harness) -> None:
        ids = await fail(harness, 3)
        deep = "[" * 300 + "]" * 300
        table = "redrive_task" if "sqlite" in type(harness).__module__ else "redrive.task"
        if table == "redrive.task":  # a row from before the limits
            # As it was afterwards: the next test may get the same database.
            checked = await harness.sql(
                "select pg_get_constraintdef(oid) from pg_constraint where conname = 'payload_check'"
            )
            await harness.sql("alter domain redrive.payload drop constraint payload_check")
        await harness.sql(f"update {table} set payload = '{deep}' where id = '{ids[1]}'")
        if table == "redrive.task":
            await harness.sql(f"alter domain redrive.payload add constraint payload_check {checked[0][0]} not valid")
        (task,) = [task for task in await harness.store.failed(A, limit=10) if task.id == ids[1]]
        assert "unreadable" in task.payload
        assert (await to_the_end(harness.store, await begin(harness.store))).done == 3

    async def test_cancelling_and_rejecting_at_once(self, harness: Harness) -> None:
        await fail(harness, 2)
        for _ in range(8):
            operation, approval = await lifecycle.begin(
                harness.store, Action.FORGET, FailureFilter(), actor="ann", rule=Rule(100)
            )
            assert approval is not None
            answers = await asyncio.gather(
                lifecycle.cancel(harness.store, operation.id, actor="ann"),
                approvals.reject(harness.store, approval.id, actor="bob"),
                return_exceptions=True,
            )
            refused = [answer for answer in answers if isinstance(answer, Exception)]
            assert len(refused) <= 1 and all(isinstance(e, ChangedMeanwhile | InvalidTransition) for e in refused), (
                refused
            )
            assert (await lifecycle.show(harness.store, operation.id)).status is Status.CANCELLED

    async def test_a_plan_of_everything_needs_a_second_person(self, harness: Harness) -> None:
        await fail(harness, 2)
        page = await plans.preview(harness.store, FailureFilter(), bind="ann")
        _, approval = await lifecycle.begin(harness.store, Action.FORGET, actor="ann", plan=page.plan, rule=Rule(100))
        assert approval is not None


class TestApprovals:
    async def ask(self, harness: Harness, action: Action = Action.FORGET, which: FailureFilter = EVERY_FAILURE) -> Any:
        return await lifecycle.begin(harness.store, action, which, actor="ann", reason="r", rule=Rule(5))

    @pytest.mark.parametrize(
        ("action", "which", "needed"),
        [
            (Action.FORGET, FailureFilter(), "all failures are given up"),
            (Action.RETRY, FailureFilter(), "everything is retried"),
            (Action.PURGE, FailureFilter(queue="default"), "waiting tasks are given up"),
            (Action.RETRY, FailureFilter(kind="A"), "6 tasks are more than 5"),
            (Action.RETRY, FailureFilter(kind="B"), None),
        ],
    )
    async def test_what_needs_a_second_person(
        self, harness: Harness, action: Action, which: FailureFilter, needed: str | None
    ) -> None:
        await fail(harness, 6)
        await fail(harness, 5, OTHER, "B")
        operation, approval = await self.ask(harness, action, which)
        if needed is None:
            assert approval is None and operation.status is Status.RUNNING
        else:
            assert approval.body["needed"] == needed
            assert operation.status is Status.WAITING

    async def test_asked_approved_carried_out(self, harness: Harness) -> None:
        await fail(harness, 6)
        operation, approval = await self.ask(harness)
        assert await step(harness.store, operation.id, "w1") is None
        with pytest.raises(NotAllowed, match="ann asked for it"):
            await approvals.approve(harness.store, approval.id, actor="ann")
        await approvals.approve(harness.store, approval.id, actor="bob", reason="fine")
        ended = await to_the_end(harness.store, operation)
        assert (ended.status, ended.done) == (Status.COMPLETED, 6)
        told = {(row.actor, row.action) for row in await harness.audit() if not row.action.endswith("ITEM")}
        assert told == {
            ("ann", "APPROVAL_REQUEST"),
            ("bob", "APPROVAL_APPROVE"),
            ("ann", "OPERATION_START"),
            ("ann", "TASK_FORGET_BATCH_SUMMARY"),
        }
        with pytest.raises(InvalidTransition, match="is approved"):
            await approvals.reject(harness.store, approval.id, actor="bob")

    async def test_rejected(self, harness: Harness) -> None:
        await fail(harness, 6)
        operation, approval = await self.ask(harness)
        await approvals.reject(harness.store, approval.id, actor="ann", reason="changed my mind")
        ended = await lifecycle.show(harness.store, operation.id)
        assert (ended.status, ended.note) == (Status.CANCELLED, "rejected by ann: changed my mind")
        assert await harness.store.count_failed(FailureFilter()) == 6

    async def test_what_was_not_done_is_in_nobodys_name_as_done(self, harness: Harness) -> None:
        await fail(harness, 6)
        (rejected, first), (late, _), (withdrawn, _) = [await self.ask(harness) for _ in range(3)]
        await approvals.reject(harness.store, first.id, actor="bob", reason="no")
        await lifecycle.cancel(harness.store, withdrawn.id, actor="cy")
        begun = await begin(harness.store)
        await lifecycle.cancel(harness.store, begun.id, actor="cy")
        await harness.advance(24 * 3600 + 1)
        await approvals.expire(harness.store)
        ends = {
            rejected.id: ("bob", "OPERATION_REJECT"),
            late.id: ("redrive", "OPERATION_EXPIRE"),
            withdrawn.id: ("cy", "OPERATION_CANCEL"),
            begun.id: ("cy", "OPERATION_CANCEL"),
        }
        for operation_id, end in ends.items():
            rows = await harness.audit(bulk_id=operation_id)
            assert not [row.action for row in rows if row.action.endswith("SUMMARY")]
            (row,) = [row for row in rows if (row.actor, row.action) == end]
            assert (row.after["matched"], row.after["done"]) == (6, 0) and row.target == f"operation:{operation_id}"
            assert done_of_matched(row.after) == "0 of 6"

    async def test_nobody_decides(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        await fail(harness, 6)
        for _ in range(2):
            operation, approval = await self.ask(harness)
        monkeypatch.setattr(approvals, "APPROVALS_PER_PIECE", 1)
        assert await approvals.expire(harness.store) == 0
        await harness.advance(24 * 3600 + 1)
        with pytest.raises(InvalidTransition, match="has expired"):
            await approvals.approve(harness.store, approval.id, actor="bob")
        assert await approvals.expire(harness.store) == 2
        assert (await approvals.show(harness.store, approval.id)).state == "expired"
        assert (await lifecycle.show(harness.store, operation.id)).status is Status.CANCELLED

    async def test_an_operation_that_waits_can_be_withdrawn(self, harness: Harness) -> None:
        await fail(harness, 6)
        operation, approval = await self.ask(harness)
        await lifecycle.cancel(harness.store, operation.id, actor="ann")
        assert (await approvals.show(harness.store, approval.id)).state == "withdrawn"
        with pytest.raises(InvalidTransition, match="is withdrawn"):
            await approvals.approve(harness.store, approval.id, actor="bob")

    async def test_two_approve_at_once(self, harness: Harness) -> None:
        await fail(harness, 6)
        _, approval = await self.ask(harness)
        answers = await asyncio.gather(
            *(approvals.approve(harness.store, approval.id, actor=name) for name in ("bob", "cy")),
            return_exceptions=True,
        )
        assert sum(isinstance(answer, ChangedMeanwhile | InvalidTransition) for answer in answers) == 1
        assert len(await harness.audit(action="OPERATION_START")) == 1


WRITTEN_BEFORE = json.loads("""{
    "actor": "ann", "reason": "fixed", "total": 5, "done": 2, "skipped": 1, "rate": null, "approval": null,
    "note": null, "fixed": null, "idempotent": null, "last_piece": 2, "driver": "w1", "which": {"kind": "A"},
    "upto": 0, "cursor": 0, "canary": null, "stop_on_return": false, "fingerprints": [], "plan": null,
    "archive": null, "erased": {}, "traces": [], "letters": 0, "cancelled": 0, "given_up_until": 0
}""")
LAST = UUID(int=7)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"action": "forget", "upto": 9, "cursor": 3, "plan": "p"}, Forget(9, 3, "p")),
        ({"action": "retry", "upto": 9, "cursor": 3, "letters": 4}, Retry(9, 3, letters=4)),
        ({"action": "purge", "upto": 9, "cursor": str(LAST)}, Purge(9, LAST)),
        ({"action": "cancel", "upto": 9, "cursor": f"2 {LAST}"}, Cancel(9, 2, LAST)),
        ({"action": "erase", "cursor": "traces 0", "traces": ["t"]}, Erasure("traces", "0", traces=("t",))),
        (
            {"action": "work", "work": {"feature": "f", "verb": "v", "subject": "s", "unit": "u"}},
            Work("f", "v", "s", "u"),
        ),
    ],
    ids=lambda value: value.get("action") if isinstance(value, dict) else "",
)
def test_an_operation_is_read_that_was_written_before_the_first_release(given: dict[str, Any], what: Any) -> None:
    now = datetime.now(UTC)
    operation = Operation.of(Record("operation", "o1", "completed", 3, {**WRITTEN_BEFORE, **given}, now, now, 1))
    assert (operation.what, operation.done, operation.which) == (what, 2, FailureFilter(kind="A"))


@pytest.mark.parametrize(
    "what",
    [
        Forget(9, 3, "p"),
        Retry(9, 3, None, 4, 1, 7, Canary(2, 50.0, (UUID(int=7),), True, False, Then.WAIT), True, ("f",)),
        Purge(9, UUID(int=7)),
        Cancel(9, 2, UUID(int=7)),
        Erasure("traces", "0", "/a", {"tasks": 2}, ("t",)),
        Work("f", "v", "s", "u", {"n": 1}, {}),
    ],
    ids=lambda what: what.action.value,
)
def test_an_operation_is_read_as_it_was_written(what: Any) -> None:
    now = datetime.now(UTC)
    which = FailureFilter(kind="A", ids=(UUID(int=1),), since=now)
    operation = Operation("o1", what, which, "ann", "mended", 5, done=2, skipped=1, last_piece=2, driver="w1")
    body = json.loads(json.dumps(operation.body()))
    assert Operation.of(Record("operation", "o1", "running", 3, body, now, now, 1)) == operation
    with pytest.raises(TypeError):  # of a version to come: who does not know it all must not write it back
        Operation.of(Record("operation", "o1", "running", 3, {**body, "unheard": 1}, now, now, 1))


async def test_what_a_purge_gave_up_is_put_back(harness: Harness) -> None:
    """Tasks that never failed have no dead letter: no filter of a retry finds them."""
    ids = await harness.enqueue_many(6, "A")
    purge = await to_the_end(harness.store, await begin(harness.store, Action.PURGE, A))
    assert purge.done == 6
    await harness.advance(5)
    await actions.retry(harness.store, ids[:1], actor="bob")
    await actions.cancel(harness.store, ids[:1], actor="bob")  # for a reason of his own
    begun = await operator(harness).operations.put_back(purge.id)
    assert begun.approval is None and begun.operation.total == 5
    ended = await to_the_end(harness.store, begun.operation)
    assert (ended.status, ended.done, ended.skipped) == (Status.COMPLETED, 5, 0)
    assert [(await harness.task(task_id)).state for task_id in ids] == [State.CANCELLED, *[State.QUEUED] * 5]
    with pytest.raises(InvalidTransition, match="cancelled any more"):
        await operator(harness).operations.put_back(purge.id)
    with pytest.raises(InvalidTransition, match="is a retry"):
        await operator(harness).operations.put_back(ended.id)
    await harness.check_totals()
