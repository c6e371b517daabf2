"""Schedules: fired once across the fleet."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta

from redrive.kernel.commit import Commit, Declare, Fire, Schedule
from redrive.kernel.ports.store import ScheduleRow
from redrive.kernel.task import State
from redrive_kit.conformance.harness import Harness


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
