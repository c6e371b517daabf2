"""Settle: what each outcome leaves behind, and where every move of the machine leads by what it meets in the row."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.failure import failure
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.machine import TABLE, DeadReason, Event, Meets, Transition, lands
from redrive.kernel.outcome import Cancel, Completed, Released, Retry, Snooze
from redrive.kernel.ports.store import Cycle
from redrive.kernel.task import State
from redrive_kit.conformance.harness import (
    LEASE,
    RETRY_AT_ONCE,
    SETTLED,
    TERMINAL,
    Harness,
    failing,
    failing_with,
    operator_move,
)


class TestSettle:
    async def test_each_outcome_reaches_its_state(self, harness: Harness) -> None:
        for name, (outcome, state) in SETTLED.items():
            claimed = await harness.running(queue=name)
            assert await harness.settle(claimed, outcome), name
            task = await harness.task(claimed.id)
            assert (task.state, task.lease_token, task.lease_expires_at) == (state, None, None), name
        assert await harness.totals() == {(name, "A", state): 1 for name, (_, state) in SETTLED.items()}
        await harness.check_totals()

    async def test_completion_goes_to_history(self, harness: Harness) -> None:
        claimed = await harness.running(group="g", scope="s", trace_id="t")
        await harness.settle(claimed, Completed('{"rows":[1,2]}'))
        task = await harness.task(claimed.id)
        assert (task.result, task.attempt_count, task.worker_id) == ({"rows": [1, 2]}, 1, "w1")
        assert (task.group, task.scope, task.trace_id) == ("g", "s", "t")
        assert task.execution_ms == pytest.approx(12.5)
        assert task.finished and task.finished_at is not None

    async def test_all_outcomes_in_one_call(self, harness: Harness) -> None:
        await harness.enqueue_many(len(SETTLED) * 3)
        claimed = await harness.claim(100)
        outcomes = list(SETTLED.values()) * 3
        cycle = await harness.settle_many(
            [(task, outcome) for task, (outcome, _) in zip(claimed, outcomes, strict=True)]
        )
        assert cycle.lost == set()
        assert [await harness.state(task.id) for task in claimed] == [state for _, state in outcomes]
        await harness.check_totals()

    async def test_results_of_one_call_stay_with_their_tasks(self, harness: Harness) -> None:
        await harness.enqueue_many(6)
        claimed = await harness.claim(6)
        await harness.settle_many([(t, Completed(str(n) if n % 2 else None)) for n, t in enumerate(claimed)])
        assert [(await harness.task(t.id)).result for t in claimed] == [None, 1, None, 3, None, 5]

    async def test_terminal_failure_stays_in_sight_with_a_dead_letter(self, harness: Harness) -> None:
        claimed = await harness.running(group="g", scope="s", trace_id="t", payload='{"shot":4}')
        await harness.settle(claimed, TERMINAL)
        task = await harness.task(claimed.id)
        assert (task.failed, task.error_code, task.error_message) == (
            True,
            "TASK_PRECONDITION_FAILED",
            "the shot is locked",
        )
        assert task.error_reason and task.failure_type and task.error_fingerprint and task.failed_at
        assert (task.payload, task.next_attempt_at) == ({"shot": 4}, None)
        (letter,) = await harness.letters(claimed.id)
        assert (letter.task_id, letter.reason, letter.error_code) == (
            claimed.id,
            DeadReason.NON_RETRYABLE,
            "TASK_PRECONDITION_FAILED",
        )
        assert (letter.payload, letter.group, letter.scope, letter.trace_id) == ({"shot": 4}, "g", "s", "t")
        assert (letter.attempt_count, letter.max_attempts, letter.kind, letter.queue) == (1, 3, "A", "default")

    async def test_using_up_attempts_is_terminal(self, harness: Harness) -> None:
        task_id = await harness.enqueue(max_attempts=2)
        await harness.settle(await harness.claim_one(), RETRY_AT_ONCE)
        assert await harness.letters(task_id) == []
        await harness.settle(await harness.claim_one(), failing())
        assert await harness.state(task_id) is State.FAILED
        (letter,) = await harness.letters(task_id)
        assert (letter.reason, letter.attempt_count) == (DeadReason.MAX_ATTEMPTS, 2)

    async def test_every_failed_attempt_is_kept(self, harness: Harness) -> None:
        task_id = await harness.enqueue(max_attempts=3)
        for n in range(3):
            await harness.settle(await harness.claim_one(worker="w1"), failing(f"cause {'abc'[n]}"))
            await harness.advance(20)
            await harness.tick()
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None
        assert [(a.attempt, a.message, a.worker_id, a.replay) for a in timeline.attempts] == [
            (1, "cause a", "w1", 0),
            (2, "cause b", "w1", 0),
            (3, "cause c", "w1", 0),
        ]
        assert all(
            a.stack == f"Traceback: {a.message}" and a.code == "TASK_EXECUTION_FAILED" for a in timeline.attempts
        )
        assert all(a.execution_ms == pytest.approx(12.5) for a in timeline.attempts)
        assert [letter.task_id for letter in timeline.dead_letters] == [task_id]
        assert timeline.task.error_message == "cause c"

    async def test_what_may_be_shown_of_a_failure_is_kept_with_it(self, harness: Harness) -> None:
        task_id = await harness.enqueue(max_attempts=2)
        for n in range(2):
            await harness.settle(await harness.claim_one(), failing_with({"message": "safe", "status": 500 + n}))
            await harness.advance(20)
            await harness.tick()
        timeline = await harness.store.timeline(task_id)
        assert timeline is not None
        last = {"message": "safe", "status": 501}
        assert [a.summary for a in timeline.attempts] == [{"message": "safe", "status": 500}, last]
        assert (timeline.task.error_summary, timeline.dead_letters[0].error_summary) == (last, last)
        if harness.reads:
            (found,) = await harness.store.failed(FailureFilter(), limit=10)
            assert found.error_summary == last
        await harness.store.apply(Commit(transitions=[operator_move(Event.REDRIVE, task_id)]))
        assert (await harness.task(task_id)).error_summary is None
        await harness.settle(await harness.claim_one(), failing_with({}))
        assert (await harness.task(task_id)).error_summary == {}

    async def test_a_retry_waits_for_its_backoff(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.settle(claimed, Retry("later", after=10))
        task = await harness.task(claimed.id)
        assert task.state is State.DELAYED and task.next_attempt_at is not None
        assert (task.error_message, task.attempt_count) == ("later", 1)
        await harness.advance(8)
        await harness.tick()
        assert await harness.claim(1) == []
        await harness.advance(3)
        await harness.tick()
        assert (await harness.claim_one()).attempt == 2

    async def test_snooze_keeps_state_and_uses_no_attempt(self, harness: Harness) -> None:
        await harness.enqueue(max_attempts=1)
        for page in range(4):
            claimed = await harness.claim_one()
            assert claimed.attempt == 1
            assert (None if page == 0 else json.loads(claimed.memo or "")) == (
                None if page == 0 else {"page": page - 1}
            )
            assert await harness.settle(claimed, Snooze(0, state={"page": page}))
        assert (await harness.task(claimed.id)).attempt_count == 0

    async def test_state_of_a_snooze_outlives_a_retry_and_a_plain_snooze(self, harness: Harness) -> None:
        await harness.running()
        await harness.advance(LEASE + 1)
        await harness.recover()
        for outcome in (Snooze(0, state={"job": "j1"}), RETRY_AT_ONCE, Snooze(0), Released()):
            await harness.settle(await harness.claim_one(), outcome)
        assert json.loads((await harness.claim_one()).memo or "null") == {"job": "j1"}

    async def test_attempt_arithmetic(self, harness: Harness) -> None:
        task_id = await harness.enqueue(max_attempts=3)
        seen = []
        for outcome in (Snooze(0), Released(), RETRY_AT_ONCE, Snooze(0), Released()):
            claimed = await harness.claim_one()
            await harness.settle(claimed, outcome)
            seen.append((claimed.attempt, (await harness.task(task_id)).attempt_count))
        assert seen == [(1, 0), (1, 0), (1, 1), (2, 1), (2, 1)]
        assert (await harness.claim_one()).attempt == 2
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert (await harness.task(task_id)).attempt_count == 2
        last = await harness.claim_one()
        assert last.attempt == 3
        await harness.settle(last, RETRY_AT_ONCE)
        task = await harness.task(task_id)
        assert (task.state, task.attempt_count) == (State.FAILED, 3)

    async def test_handler_cancels_its_own_task(self, harness: Harness) -> None:
        claimed = await harness.running(payload='{"keep":1}')
        await harness.settle(claimed, Cancel("the order was withdrawn"))
        task = await harness.task(claimed.id)
        assert (task.state, task.payload, task.error_message) == (
            State.CANCELLED,
            {"keep": 1},
            "the order was withdrawn",
        )

    async def test_the_same_task_twice_in_one_commit_counts_once(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.settle_many([(claimed, TERMINAL), (claimed, TERMINAL)])
        timeline = await harness.store.timeline(claimed.id)
        assert timeline is not None and len(timeline.attempts) == len(timeline.dead_letters) == 1
        await harness.check_totals()
        assert await harness.operate(Event.REDRIVE, claimed.id, claimed.id)
        assert (await harness.task(claimed.id)).replay_count == 1
        assert len(await harness.audit()) == 1
        await harness.check_totals()


LEASED = [event for event, rule in TABLE.items() if rule.fenced]
WAITING = [Event.PAUSE, Event.RESUME, Event.CANCEL]
CASES = [
    (event, to, meets)
    for events, found in ((LEASED, Meets.CANCEL_REQUESTED), (WAITING, Meets.EARLY))
    for event in events
    for to in TABLE[event].targets
    for meets in ((), (found,))
]


class TestLandings:
    @pytest.mark.parametrize("verb", ["apply", "cycle"])
    async def test_a_move_lands_where_the_machine_says(self, harness: Harness, verb: str) -> None:
        for nth, (event, to, meets) in enumerate(CASES):
            make = self.leased if event in LEASED else self.waiting
            task_id, token = await make(harness, event, meets, f"q{nth}")
            before = await harness.state(task_id)
            move = Transition(task_id, event, to, token, delay=30.0 if to is State.DELAYED else 0.0)
            move.expired = event is Event.EXPIRE
            if to is State.FAILED or event is Event.RETRY:
                move.failure = failure("TASK_EXECUTION_FAILED", "landing", "where to?")
                move.dead = DeadReason.NON_RETRYABLE if to is State.FAILED else None
            commit = Commit(transitions=[move])
            done: Applied | Cycle = await (
                harness.store.apply(commit) if verb == "apply" else harness.store.cycle(commit, None)
            )
            expected = lands(event, to, meets)
            assert await harness.state(task_id) is expected, (event, to, meets)
            assert done.lost == ({task_id} if expected is before else set()), (event, to, meets)
            # Whoever asked is told: what is logged and counted is what became of the task.
            assert done.instead == ({} if expected in (to, before) else {task_id: expected}), (event, to, meets)
        await harness.check_totals()

    async def leased(
        self, harness: Harness, event: Event, meets: tuple[Meets, ...], queue: str
    ) -> tuple[UUID, UUID | None]:
        claimed = await harness.running(queue=queue)
        if Meets.CANCEL_REQUESTED in meets:
            assert await harness.ask_to_cancel(claimed.id)
        if event is Event.EXPIRE:
            await harness.advance(LEASE + 1)
        return claimed.id, claimed.token

    async def waiting(
        self, harness: Harness, event: Event, meets: tuple[Meets, ...], queue: str
    ) -> tuple[UUID, UUID | None]:
        task_id = await harness.enqueue(queue=queue, delay=60.0 if Meets.EARLY in meets else None)
        if event is Event.RESUME:
            await harness.operate(Event.PAUSE, task_id)
        return task_id, None
