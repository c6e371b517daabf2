"""Cancel: of what waits, at once; of what runs, by asking."""

from __future__ import annotations

import asyncio

from redrive.kernel.machine import Event
from redrive.kernel.outcome import Cancel, Completed
from redrive.kernel.task import State
from redrive_kit.conformance.harness import LEASE, REQUEUED, SETTLED, TERMINAL, Harness


class TestCancel:
    async def test_waiting_and_failed_tasks_are_cancelled_at_once(self, harness: Harness) -> None:
        payload = '{"keep":1}'
        failed, paused = await harness.failed(payload=payload), await harness.enqueue(payload=payload)
        await harness.operate(Event.PAUSE, paused)
        for task_id, state in {
            failed: State.FAILED,
            paused: State.PAUSED,
            await harness.enqueue(payload=payload): State.QUEUED,
            await harness.enqueue(payload=payload, delay=9.0): State.DELAYED,
        }.items():
            assert await harness.state(task_id) is state
            assert await harness.operate(Event.CANCEL, task_id, reason="not wanted"), state
            task = await harness.task(task_id)
            assert (task.state, task.payload, task.error_message) == (State.CANCELLED, {"keep": 1}, "not wanted")
        await harness.advance(60)
        await harness.tick()
        assert await harness.claim(5) == []
        await harness.check_totals()

    async def test_a_running_task_is_asked(self, harness: Harness) -> None:
        claimed = await harness.running()
        assert not await harness.operate(Event.CANCEL, claimed.id)
        assert await harness.ask_to_cancel(claimed.id)
        task = await harness.task(claimed.id)
        assert task.state is State.RUNNING and task.cancel_requested_at is not None
        assert (await harness.tick("w1")).cancels == [claimed.id]
        assert (await harness.tick("w2")).cancels == []
        assert await harness.settle(claimed, Cancel("asked to"))
        assert await harness.state(claimed.id) is State.CANCELLED
        assert (await harness.tick("w1")).cancels == []
        (audit,) = await harness.audit()
        assert (audit.action, audit.task_id, audit.reason) == ("TASK_CANCEL_REQUEST", claimed.id, "because")

    async def test_only_running_tasks_are_asked(self, harness: Harness) -> None:
        task_id = await harness.enqueue()
        assert not await harness.ask_to_cancel(task_id)
        assert (await harness.task(task_id)).cancel_requested_at is None
        assert await harness.audit() == []

    async def test_asking_twice_keeps_the_first_time(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.ask_to_cancel(claimed.id)
        first = (await harness.task(claimed.id)).cancel_requested_at
        assert await harness.ask_to_cancel(claimed.id)
        assert (await harness.task(claimed.id)).cancel_requested_at == first
        assert len(await harness.audit(action="TASK_CANCEL_REQUEST")) == 1, "whoever asked first is the one who did"

    async def test_a_cancel_request_wins_over_requeueing(self, harness: Harness) -> None:
        for name in REQUEUED:
            claimed = await harness.running()
            await harness.ask_to_cancel(claimed.id)
            assert await harness.settle(claimed, SETTLED[name][0]), name
            assert await harness.state(claimed.id) is State.CANCELLED, name
        await harness.advance(60)
        await harness.tick()
        assert await harness.claim(5) == []
        await harness.check_totals()

    async def test_a_cancel_request_wins_over_recovery(self, harness: Harness) -> None:
        """Also where the attempts are used up: nobody waits for a worker that is gone to say so."""
        for most in (1, 3):
            claimed = await harness.running(max_attempts=most)
            await harness.ask_to_cancel(claimed.id)
            await harness.advance(LEASE + 1)
            assert await harness.recover() == {claimed.id}
            assert await harness.state(claimed.id) is State.CANCELLED
            assert await harness.letters(claimed.id) == []
        await harness.check_totals()

    async def test_work_that_was_done_anyway_counts(self, harness: Harness) -> None:
        done, broken = await harness.enqueue_many(2)
        first, second = await harness.claim(2)
        await harness.ask_to_cancel(done)
        await harness.ask_to_cancel(broken)
        await harness.settle(first, Completed())
        await harness.settle(second, TERMINAL)
        assert [await harness.state(i) for i in (done, broken)] == [State.COMPLETED, State.FAILED]

    async def test_a_request_does_not_outlive_its_lease(self, harness: Harness) -> None:
        """A task that failed in spite of the request and is retried by an operator runs."""
        claimed = await harness.running()
        await harness.ask_to_cancel(claimed.id)
        await harness.settle(claimed, TERMINAL)
        await harness.operate(Event.REDRIVE, claimed.id)
        again = await harness.claim_one()
        assert (await harness.tick()).cancels == []
        assert await harness.settle(again, SETTLED["release"][0])
        assert await harness.state(claimed.id) is State.QUEUED

    async def test_cancel_against_claim_one_wins(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(12):
            task_id = await harness.enqueue()
            claimed, cancelled = await asyncio.gather(
                harness.claim(1), harness.operate(Event.CANCEL, task_id, store=other)
            )
            assert await harness.state(task_id) is (State.CANCELLED if cancelled else State.RUNNING)
            if claimed:
                assert not cancelled
                await harness.settle(claimed[0], Completed())
        await harness.check_totals()

    async def test_a_request_against_a_finishing_handler_one_wins(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(12):
            claimed = await harness.running()
            landed, _ = await asyncio.gather(
                harness.settle(claimed, SETTLED["release"][0], store=other), harness.ask_to_cancel(claimed.id)
            )
            assert landed
            state = await harness.state(claimed.id)
            assert state in (State.QUEUED, State.CANCELLED)
            if state is State.QUEUED:
                assert await harness.settle(await harness.claim_one(), Completed())
        await harness.check_totals()
