"""Upkeep: retention removes what is old, and nothing that is still needed."""

from __future__ import annotations

from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.task import State
from redrive.testing.conformance.harness import Harness, failing

DAY = 86_400.0
KEEP = {"history_days": 10.0, "key_days": 3.0, "audit_days": 30.0}


async def tidy(harness: Harness) -> None:
    for duty in ("fold", "partitions", "prune"):
        await harness.store.upkeep(duty, KEEP)


class TestUpkeep:
    async def test_history_is_kept_and_then_removed(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.settle(claimed, Completed())
        await harness.advance(8 * DAY)
        await tidy(harness)
        assert await harness.state(claimed.id) is State.COMPLETED
        await harness.advance(4 * DAY)
        await tidy(harness)
        assert await harness.store.get(claimed.id) is None
        assert await harness.count(State.COMPLETED) == 1  # totals count everything ever finished

    async def test_live_tasks_are_never_removed(self, harness: Harness) -> None:
        waiting = await harness.enqueue()
        failed = await harness.failed(queue="q")
        await harness.advance(400 * DAY)
        await tidy(harness)
        assert [await harness.state(i) for i in (waiting, failed)] == [State.QUEUED, State.FAILED]
        timeline = await harness.store.timeline(failed)
        assert timeline is not None and len(timeline.attempts) == len(timeline.dead_letters) == 1

    async def test_a_key_is_free_again_after_its_time(self, harness: Harness) -> None:
        done = await harness.running(idempotency_key="done")
        await harness.settle(done, Completed())
        live = await harness.enqueue(idempotency_key="live", queue="q")
        await harness.advance(2 * DAY)
        await tidy(harness)
        assert await harness.enqueue(idempotency_key="done") == done.id
        await harness.advance(2 * DAY)
        await tidy(harness)
        assert await harness.enqueue(idempotency_key="done") != done.id
        assert await harness.enqueue(idempotency_key="live", queue="q") == live

    async def test_attempts_of_removed_tasks_go_too(self, harness: Harness) -> None:
        await harness.enqueue()
        claimed = await harness.claim_one()
        await harness.settle(claimed, failing())
        await harness.advance(11)
        await harness.tick()
        await harness.settle(await harness.claim_one(), Completed())
        await harness.advance(20 * DAY)
        await tidy(harness)
        assert await harness.store.timeline(claimed.id) is None

    async def test_one_that_is_kept_does_not_end_the_round(self, harness: Harness) -> None:
        await harness.enqueue(idempotency_key="kept", queue="q")
        await harness.store.apply(Commit(enqueues=[harness.new(idempotency_key=f"k{n}") for n in range(5100)]))
        while batch := await harness.claim(2000):
            await harness.settle_many([(task, Completed()) for task in batch])
        await harness.advance(4 * DAY)
        assert await harness.store.upkeep("prune", KEEP) == 5100

    async def test_what_is_kept_is_read_once_and_pruned_when_its_task_has_left(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(100, max_attempts=1)
        while batch := await harness.claim(10):
            await harness.settle_many([(task, failing()) for task in batch])
            await harness.advance(1)
        await harness.advance(20 * DAY)
        async with harness.measure(harness.store) as first:
            await harness.store.upkeep("prune", KEEP)
        async with harness.measure(harness.store) as second:
            await harness.store.upkeep("prune", KEEP)
        assert second.rows < first.rows / 3, (first.rows, second.rows)
        await harness.operate(Event.CANCEL, *ids)
        await harness.advance(11 * DAY)
        await tidy(harness)
        assert [await harness.store.timeline(task_id) for task_id in ids] == [None] * 100

    async def test_workers_not_seen_for_long_are_forgotten(self, harness: Harness) -> None:
        await harness.tick("gone")
        await harness.advance(2 * DAY)
        await harness.tick("here")
        await tidy(harness)
        assert [worker.id for worker in (await harness.store.overview()).workers] == ["here"]

    async def test_an_unknown_duty_does_nothing(self, harness: Harness) -> None:
        assert await harness.store.upkeep("no_such_duty", KEEP) == 0
