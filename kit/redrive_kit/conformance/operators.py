"""Operators: retry, cancel, pause and resume, each with its audit row in the same transaction."""

from __future__ import annotations

import asyncio

import pytest

from redrive.errors import ChangedMeanwhile
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed, Snooze
from redrive.kernel.records import Put
from redrive.kernel.task import State
from redrive_kit.conformance.harness import RETRY_AT_ONCE, TERMINAL, Harness, failing, operator_move


class TestOperators:
    async def test_retry_of_a_failed_task(self, harness: Harness) -> None:
        task_id = await harness.failed(payload='{"n":1}', group="g", scope="s", trace_id="t", priority=3, timeout=4.0)
        assert await harness.operate(Event.REDRIVE, task_id, actor="ann", reason="fixed the shot")
        task = await harness.task(task_id)
        assert (task.state, task.attempt_count, task.replay_count) == (State.QUEUED, 0, 1)
        assert (task.last_replayed_by, task.last_replayed_reason) == ("ann", "fixed the shot")
        assert task.last_replayed_at is not None
        assert (task.error_code, task.error_message, task.error_stack, task.failed_at) == (None,) * 4
        assert (task.payload, task.group, task.scope, task.trace_id, task.priority, task.timeout) == (
            {"n": 1},
            "g",
            "s",
            "t",
            3,
            4.0,
        )
        claimed = await harness.claim_one()
        assert (claimed.id, claimed.attempt, claimed.replay_count) == (task_id, 1, 1)
        await harness.check_totals()

    async def test_retry_of_a_cancelled_task(self, harness: Harness) -> None:
        task_id = await harness.cancelled(
            payload='{"n":1}',
            group="g",
            scope="s",
            trace_id="t",
            priority=3,
            timeout=4.0,
            idempotency_key="k",
            max_attempts=2,
        )
        created = (await harness.task(task_id)).created_at
        assert await harness.operate(Event.REDRIVE, task_id, reason="wanted after all")
        task = await harness.task(task_id)
        assert (task.state, task.replay_count, task.created_at) == (State.QUEUED, 1, created)
        assert (task.last_replayed_by, task.last_replayed_reason) == ("ann", "wanted after all")
        assert (task.payload, task.group, task.scope, task.trace_id, task.priority, task.timeout) == (
            {"n": 1},
            "g",
            "s",
            "t",
            3,
            4.0,
        )
        assert (task.idempotency_key, task.max_attempts) == ("k", 2)
        assert await harness.settle(await harness.claim_one(), Completed())
        assert await harness.totals() == {("default", "A", State.COMPLETED): 1}
        await harness.check_totals()

    async def test_only_failed_and_cancelled_tasks_are_retried(self, harness: Harness) -> None:
        running, completed = await harness.running(), await harness.running()
        await harness.settle(completed, Completed())
        paused = await harness.enqueue()
        await harness.operate(Event.PAUSE, paused)
        for task_id, state in {
            await harness.enqueue(): State.QUEUED,
            await harness.enqueue(delay=60.0): State.DELAYED,
            running.id: State.RUNNING,
            paused: State.PAUSED,
            completed.id: State.COMPLETED,
        }.items():
            before = await harness.store.timeline(task_id)
            assert not await harness.operate(Event.REDRIVE, task_id), state
            assert await harness.store.timeline(task_id) == before, state
            assert await harness.state(task_id) is state

    async def test_an_unknown_task_is_answered_as_lost(self, harness: Harness) -> None:
        for event in (Event.REDRIVE, Event.CANCEL, Event.PAUSE, Event.RESUME):
            assert not await harness.operate(event, new_id())
        assert await harness.audit() == []

    async def test_retry_twice_at_once_retries_once(self, harness: Harness) -> None:
        other = await harness.another()
        for make in (harness.failed, harness.cancelled):
            task_id = await make(queue="q")
            moved = await asyncio.gather(
                *(harness.operate(Event.REDRIVE, task_id, store=store) for store in (harness.store, other) * 3)
            )
            assert sum(moved) == 1
            assert (await harness.task(task_id)).replay_count == 1
            audit = [row for row in await harness.audit() if row.action == "TASK_RETRY" and row.task_id == task_id]
            assert len(audit) == 1
            await harness.settle(await harness.claim_one(queues=("q",)), Completed())
        await harness.check_totals()

    async def test_dead_letters_and_attempts_survive_a_retry(self, harness: Harness) -> None:
        task_id = await harness.enqueue(max_attempts=2)
        for replay in range(2):
            await harness.settle(await harness.claim_one(), RETRY_AT_ONCE)
            await harness.settle(await harness.claim_one(), failing())
            assert await harness.state(task_id) is State.FAILED
            if replay == 0:
                await harness.operate(Event.REDRIVE, task_id)
        await harness.operate(Event.REDRIVE, task_id)
        await harness.settle(await harness.claim_one(), Completed())
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None and timeline.task.state is State.COMPLETED
        assert [(a.replay, a.attempt) for a in timeline.attempts] == [(0, 1), (0, 2), (1, 1), (1, 2)]
        assert [letter.replay_count for letter in timeline.dead_letters] == [0, 1]
        assert [row.action for row in timeline.audit] == ["TASK_RETRY", "TASK_RETRY"]

    async def test_a_retry_forgets_the_state_of_a_snooze(self, harness: Harness) -> None:
        await harness.enqueue()
        await harness.settle(await harness.claim_one(), Snooze(0, state={"page": 3}))
        claimed = await harness.claim_one()
        await harness.settle(claimed, TERMINAL)
        await harness.operate(Event.REDRIVE, claimed.id)
        assert (await harness.claim_one()).memo is None

    async def test_each_action_leaves_one_audit_row(self, harness: Harness) -> None:
        task_id = await harness.enqueue()
        for event in (Event.PAUSE, Event.RESUME, Event.CANCEL, Event.REDRIVE):
            assert await harness.operate(event, task_id, actor="bob", reason=f"why {event}")
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None
        actions = {
            "TASK_PAUSE": Event.PAUSE,
            "TASK_RESUME": Event.RESUME,
            "TASK_CANCEL": Event.CANCEL,
            "TASK_RETRY": Event.REDRIVE,
        }
        assert [(row.action, row.actor, row.reason, row.task_id) for row in timeline.audit] == [
            (action, "bob", f"why {event}", task_id) for action, event in actions.items()
        ]
        assert [(row.before["state"], row.after["state"]) for row in timeline.audit] == [
            ("queued", "paused"),
            ("paused", "queued"),
            ("queued", "cancelled"),
            ("cancelled", "queued"),
        ]

    async def test_a_lost_action_leaves_no_audit_row(self, harness: Harness) -> None:
        claimed = await harness.running()
        assert not await harness.operate(Event.CANCEL, claimed.id)
        await harness.settle(claimed, Completed())
        assert await harness.audit() == []

    async def test_bulk_actions_answer_per_task(self, harness: Harness) -> None:
        failed = [await harness.failed() for _ in range(3)]
        completed = await harness.running(queue="q")
        await harness.settle(completed, Completed())
        cancelled = await harness.cancelled()
        moves = [operator_move(Event.REDRIVE, i) for i in (*failed, completed.id, cancelled)]
        applied = await harness.store.apply(Commit(transitions=moves))
        assert applied.lost == {completed.id}
        assert await harness.count(State.QUEUED) == 4
        assert len(await harness.audit(action="TASK_RETRY")) == 4

    async def test_audit_rows_of_their_own(self, harness: Harness) -> None:
        task_id = await harness.enqueue()
        rows = [
            Audit("ann", "TASK_RETRY_BATCH_SUMMARY", "cleanup", bulk_id="b1", after={"retried": 4}),
            Audit("ann", "TASK_RETRY_BATCH_ITEM", None, task_id, "b1", {"state": "failed"}, {"state": "queued"}),
        ]
        await harness.store.apply(Commit(audits=rows))
        item, summary = await harness.audit()
        assert (summary.action, summary.bulk_id, summary.after, summary.before) == (
            "TASK_RETRY_BATCH_SUMMARY",
            "b1",
            {"retried": 4},
            None,
        )
        assert (item.task_id, item.before, item.after) == (task_id, {"state": "failed"}, {"state": "queued"})

    async def test_an_action_whose_commit_fails_did_not_happen(self, harness: Harness) -> None:
        task_id = await harness.failed()
        before = await harness.store.timeline(task_id)
        stale = Put("plan", "p1", {}, version=7)
        with pytest.raises(ChangedMeanwhile):
            await harness.store.apply(
                Commit(transitions=[operator_move(Event.REDRIVE, task_id)], audits=[Audit("ann", "X")], puts=[stale])
            )
        assert await harness.store.timeline(task_id) == before
        assert await harness.audit() == []
        await harness.check_totals()
