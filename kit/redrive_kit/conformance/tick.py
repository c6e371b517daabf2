"""Tick: a worker's beat promotes what is due, and hands each duty to one worker."""

from __future__ import annotations

import asyncio

import pytest

from redrive.kernel.ports.store import Heartbeat
from redrive.kernel.task import State
from redrive_kit.conformance.harness import LEASE, Harness

YEAR = 365 * 86_400.0


class TestTick:
    async def test_due_tasks_are_promoted(self, harness: Harness) -> None:
        early = await harness.enqueue(delay=10.0)
        late = await harness.enqueue(delay=100.0)
        assert (await harness.tick()).promoted == 0
        await harness.advance(11)
        assert (await harness.tick()).promoted == 1
        assert [await harness.state(i) for i in (early, late)] == [State.QUEUED, State.DELAYED]
        assert [task.id for task in await harness.claim(5)] == [early]
        await harness.check_totals()

    async def test_promoted_tasks_run_in_the_order_they_were_due(self, harness: Harness) -> None:
        made = {delay: await harness.enqueue(delay=delay) for delay in (30.0, 10.0, 20.0)}
        waiting = await harness.enqueue()
        await harness.advance(40)
        await harness.tick()
        assert [task.id for task in await harness.claim(9)] == [waiting, made[10.0], made[20.0], made[30.0]]

    async def test_next_due_says_when_to_look_again(self, harness: Harness) -> None:
        assert (await harness.tick()).next_due is None
        await harness.enqueue(delay=100.0)
        await harness.enqueue(delay=40.0)
        due = (await harness.tick()).next_due
        assert due is not None and 30 < due <= 40
        await harness.advance(41)
        due = (await harness.tick()).next_due
        assert due is not None and 50 < due <= 60

    async def test_ticks_of_two_stores_promote_once(self, harness: Harness) -> None:
        other = await harness.another()
        await harness.enqueue_many(50, delay=10.0)
        await harness.advance(11)
        ticks = await asyncio.gather(*(harness.tick(store=store) for store in (harness.store, other) * 3))
        assert sum(tick.promoted for tick in ticks) == 50
        assert await harness.totals() == {("default", "A", State.QUEUED): 50}
        await harness.check_totals()

    async def test_a_retry_is_promoted_even_when_earlier_ticks_saw_nothing(self, harness: Harness) -> None:
        for _ in range(3):
            await harness.tick()
            await harness.advance(120)
        await harness.enqueue(delay=5.0)
        await harness.tick()
        await harness.advance(6)
        assert (await harness.tick()).promoted == 1

    async def test_a_duty_goes_to_one_worker_per_interval(self, harness: Harness) -> None:
        other = await harness.another()
        ticks = await asyncio.gather(
            *(harness.tick(f"w{n}", store=(harness.store, other)[n % 2], prune=60.0, sweep=3600.0) for n in range(6))
        )
        assert sorted(duty for tick in ticks for duty in tick.duties) == ["prune", "sweep"]
        assert (await harness.tick(prune=60.0, sweep=3600.0)).duties == []
        await harness.advance(61)
        ticks = await asyncio.gather(
            *(harness.tick(f"w{n}", store=(harness.store, other)[n % 2], prune=60.0, sweep=3600.0) for n in range(6))
        )
        assert [duty for tick in ticks for duty in tick.duties] == ["prune"]

    async def test_a_duty_does_not_wait_for_the_date_of_a_clock_that_was_ahead(self, harness: Harness) -> None:
        assert (await harness.tick(prune=60.0)).duties == ["prune"]
        await harness.advance(-YEAR)
        assert (await harness.tick(prune=60.0)).duties == ["prune"]
        assert (await harness.tick(prune=60.0)).duties == []

    async def test_recovery_is_a_duty_only_when_something_expired(self, harness: Harness) -> None:
        await harness.running()
        assert (await harness.tick(recover=1.0)).duties == []
        await harness.advance(LEASE + 1)
        assert (await harness.tick(recover=1.0)).duties == ["recover"]
        await harness.recover()
        await harness.advance(2)
        assert (await harness.tick(recover=1.0)).duties == []

    async def test_a_process_that_takes_a_name_over_is_seen(self, harness: Harness) -> None:
        await harness.tick("w1")
        claimed = await harness.running()
        await harness.advance(20)
        for _ in range(2):  # the first says that somebody lives, the next who
            await harness.store.tick(Heartbeat("w1", "other", 2, ("a", "b"), 8, 0, "1", {}, every=3.0))
            await harness.advance(1)
        (worker,) = (await harness.store.overview()).workers
        assert (worker.host, worker.pid, worker.queues, worker.concurrency, worker.every) == (
            "other",
            2,
            ("a", "b"),
            8,
            3.0,
        )
        (own,) = await harness.store.leases()
        assert (own.worker_id, own.tasks, own.earlier) == ("w1", 1, 1), "it knows nothing of this one"
        await harness.running()
        (own,) = await harness.store.leases()
        assert (own.queue, own.tasks, own.earlier) == ("default", 2, 1)
        assert own.first_ends == (await harness.task(claimed.id)).lease_expires_at
        assert own.last_ends > own.first_ends

    @pytest.mark.parametrize("stopping", [False, True])
    async def test_workers_are_seen(self, harness: Harness, stopping: bool) -> None:
        await harness.tick("w1", running=2)
        await harness.advance(30)
        await harness.tick("w1", running=3, stopping=stopping)
        await harness.tick("w2")
        one, two = (await harness.store.overview()).workers
        assert (one.id, one.host, one.pid, one.queues, one.concurrency) == ("w1", "host", 1, ("default",), 4)
        assert (one.running, one.stopping, two.id) == (3, stopping, "w2")
        assert (one.seen_at - one.started_at).total_seconds() >= 30
