"""Schedules: one task per planned time across the fleet, and a choice about what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.faults.harness import World, until

pytestmark = pytest.mark.faults


class Hourly:
    """A schedule whose runs are half an hour away from the test, so that none falls due while it runs."""

    def __init__(self, world: World, missed: str) -> None:
        self._world = world
        self.latest = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=30)
        self.env = {"FAULT_SCHEDULE": f"{self.latest.minute} * * * *", "FAULT_MISSED": missed}

    def forget_since(self, hours: int) -> None:
        """As if nobody had looked for so many runs: the next one was planned for then."""
        at = self.latest - timedelta(hours=hours)
        value = f"'{at.isoformat()}'" if self._world.postgres else str(int(at.timestamp() * 1_000_000))
        self._world.sql(f"update {self._world.table('schedule')} set next_at = {value} where name = 'quick'")

    def wait_fired(self) -> None:
        until(lambda: self._next() > datetime.now(UTC), "the schedule has caught up")
        self._world.wait_completed(self.ids())

    def _next(self) -> datetime:
        [(at,)] = self._world.sql(f"select next_at from {self._world.table('schedule')} where name = 'quick'")
        return at if isinstance(at, datetime) else datetime.fromtimestamp(at / 1e6, UTC)

    def ids(self) -> list[UUID]:
        return [UUID(task_id) for task_id in self._world.states()]


def test_two_workers_fire_a_planned_run_once(store: World) -> None:
    schedule = Hourly(store, "all")
    workers = [store.worker(name, env=schedule.env) for name in ("first", "second")]
    for hours in range(6):
        schedule.forget_since(hours)
        schedule.wait_fired()
        # One more planned time than before; those that were fired already are known by their keys.
        assert len(schedule.ids()) == hours + 1
    assert [worker.stop() for worker in workers] == [0, 0]
    assert sum(len(worker.logged("schedule.fired")) for worker in workers) == 6
    assert store.account(schedule.ids()) == {"completed": 6}


@pytest.mark.parametrize(("missed", "expected"), [("coalesce", 1), ("all", 6), ("skip", 0)])
def test_what_was_missed_while_nobody_worked(store: World, missed: str, expected: int) -> None:
    schedule = Hourly(store, missed)
    first = store.worker("first", env=schedule.env)
    assert first.stop() == 0
    schedule.forget_since(5)
    second = store.worker("second", env=schedule.env)
    schedule.wait_fired()
    assert len(schedule.ids()) == expected
    assert second.stop() == 0
    assert store.account(schedule.ids()).total() == expected
