"""Time: schedules are fired once across the fleet; a worker's beat promotes what is due, and hands each duty to one
worker."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from redrive.kernel.commit import Commit, Declare, Fire, Schedule
from redrive.kernel.ports.store import Heartbeat, ScheduleRow
from redrive.kernel.task import State
from redrive_kit.conformance.harness import LEASE, Harness


def hourly(next_at: datetime, name: str = "report") -> Schedule:
    return Schedule(name, "REPORT", "0 * * * *", "Europe/Berlin", "one", "cron", '{"day":1}', 2, 4, next_at)


async def declare(harness: Harness, *schedules: Schedule, owner: str = "app") -> None:
    await harness.control(Declare(owner, schedules))


async def due(harness: Harness) -> ScheduleRow:
    now, (row,) = await harness.store.due_schedules()
    assert row.next_at <= now
    return row


def fire(harness: Harness, row: ScheduleRow, *, tasks: int = 1) -> Fire:
    made = tuple(harness.new(row.kind, queue=row.queue) for _ in range(tasks))
    return Fire(row.name, row.next_at, row.next_at + timedelta(hours=1), made)


class TestSchedules:
    async def test_a_declared_schedule_is_listed(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now + timedelta(hours=1)))
        (row,) = (await harness.store.overview()).schedules
        assert (row.name, row.owner, row.kind, row.cron, row.timezone) == (
            "report",
            "app",
            "REPORT",
            "0 * * * *",
            "Europe/Berlin",
        )
        assert (row.missed, row.queue, row.priority, row.max_attempts) == ("one", "cron", 2, 4)
        assert json.loads(row.payload or "null") == {"day": 1}
        assert (row.next_at, row.last_at) == (now + timedelta(hours=1), None)
        assert (await harness.store.due_schedules())[1] == []

    async def test_a_due_schedule_fires_and_moves_on(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now + timedelta(seconds=60)))
        await harness.advance(61)
        row = await due(harness)
        applied = await harness.store.apply(Commit(fires=[fire(harness, row, tasks=2)]))
        assert applied.fired == {"report"}
        assert await harness.totals() == {("cron", "REPORT", State.QUEUED): 2}
        assert (await harness.store.due_schedules())[1] == []
        (after,) = (await harness.store.overview()).schedules
        assert after.last_at is not None and after.next_at == row.next_at + timedelta(hours=1)

    async def test_many_workers_fire_once(self, harness: Harness) -> None:
        other = await harness.another()
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now))
        row = await due(harness)
        stores = [harness.store, other] * 8
        answers = await asyncio.gather(*(store.apply(Commit(fires=[fire(harness, row)])) for store in stores))
        assert sorted(len(answer.fired) for answer in answers) == [0] * 15 + [1]
        assert await harness.totals() == {("cron", "REPORT", State.QUEUED): 1}

    async def test_a_look_from_before_does_not_fire_the_next_run(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now))
        row = await due(harness)
        await harness.store.apply(Commit(fires=[fire(harness, row)]))
        await harness.advance(3601)
        late = await harness.store.apply(
            Commit(fires=[fire(harness, replace(row, next_at=row.next_at - timedelta(days=1)))])
        )
        assert late.fired == set()
        assert await harness.count(State.QUEUED) == 1

    async def test_declaring_again_keeps_changes_or_drops(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        first, moved = now + timedelta(hours=1), now + timedelta(hours=5)
        await declare(harness, hourly(first, "same"), hourly(first, "changed"), hourly(first, "gone"))
        await declare(harness, hourly(first, "theirs"), owner="another app")
        await declare(
            harness,
            replace(hourly(moved, "same"), payload='{"day":2}'),
            replace(hourly(moved, "changed"), cron="30 * * * *"),
            hourly(moved, "new"),
        )
        rows = {row.name: row for row in (await harness.store.overview()).schedules}
        assert set(rows) == {"same", "changed", "new", "theirs"}
        assert json.loads(rows["same"].payload or "null") == {"day": 2}
        assert {name: row.next_at for name, row in rows.items()} == {
            "same": first,
            "changed": moved,
            "new": moved,
            "theirs": first,
        }

    async def test_a_tick_sends_somebody_to_fire(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now + timedelta(seconds=60)))
        tick = await harness.tick()
        assert "cron" not in tick.duties
        assert tick.next_due is not None and 0 < tick.next_due <= 60
        await harness.advance(61)
        assert "cron" in (await harness.tick()).duties

    async def test_firing_and_its_tasks_land_together(self, harness: Harness) -> None:
        """A task that cannot be enqueued leaves the schedule as it was."""
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now))
        row = await due(harness)
        task = harness.new("REPORT")
        await harness.store.apply(Commit(enqueues=[task]))
        try:
            await harness.store.apply(Commit(fires=[Fire(row.name, row.next_at, now + timedelta(hours=1), (task,))]))
        except Exception:  # which error is the store's business
            assert (await due(harness)).next_at == row.next_at
        else:
            raise AssertionError("a task id was taken twice")

    async def test_one_that_a_clock_ahead_has_fired_is_planned_anew(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now + timedelta(seconds=60)))
        await harness.advance(61)
        await harness.store.apply(Commit(fires=[fire(harness, await due(harness))]))
        assert (await harness.store.due_schedules())[1] == []
        await harness.advance(-365 * 86_400.0)
        now, (row,) = await harness.store.due_schedules()
        assert row.next_at > now and "cron" in (await harness.tick()).duties
        following = now + timedelta(minutes=20)
        assert (await harness.store.apply(Commit(fires=[Fire(row.name, row.next_at, following, ())]))).fired == {
            "report"
        }
        assert (await harness.store.due_schedules())[1] == [] and (await harness.tick()).duties == []
        await harness.advance(20 * 60)
        assert (await due(harness)).next_at - following < timedelta(seconds=1)

    async def test_declaring_again_never_puts_the_next_run_off(self, harness: Harness) -> None:
        now = (await harness.store.overview()).now
        await declare(harness, hourly(now + timedelta(days=400)))
        await declare(harness, hourly(now + timedelta(hours=1)))
        await declare(harness, hourly(now + timedelta(hours=2)))
        (row,) = (await harness.store.overview()).schedules
        assert row.next_at == now + timedelta(hours=1)


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
        if not harness.reads:
            return
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
