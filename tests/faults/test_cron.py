"""Schedules: one task per planned time across the fleet, and a choice about what was missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.faults.harness import World, until

pytestmark = pytest.mark.faults
EVERY_MINUTE = {"FAULT_SCHEDULE": "* * * * *"}


def plan(world: World, minutes_ago: int) -> datetime:
    """As if nobody had looked since then: the schedule's next run was planned for that minute."""
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes_ago)
    if world.postgres:
        world.sql(f"update redrive.schedule set next_at = '{at.isoformat()}' where name = 'quick'")
    else:
        world.sql(f"update redrive_schedule set next_at = {int(at.timestamp() * 1_000_000)} where name = 'quick'")
    return at


def fired(world: World) -> list[str]:
    schema = "redrive." if world.postgres else ""
    return [row[0] for row in world.sql(f"select idempotency_key from {schema}v_tasks order by idempotency_key")]


def next_run(world: World) -> datetime:
    schema = "redrive." if world.postgres else ""
    [(at,)] = world.sql(f"select next_at from {schema}schedule where name = 'quick'")
    return at if isinstance(at, datetime) else datetime.fromtimestamp(at / 1e6, UTC)


def ids(world: World) -> list[UUID]:
    return [UUID(task_id) for task_id in world.states()]


def test_two_workers_fire_a_planned_run_once(store: World) -> None:
    workers = [store.worker(name, env=EVERY_MINUTE) for name in ("first", "second")]
    for _ in range(8):
        before = len(fired(store))
        plan(store, 0)
        until(lambda: next_run(store) > datetime.now(UTC), "the schedule is fired")
        store.wait_completed(ids(store))
        assert len(fired(store)) <= before + 1
    assert [worker.stop() for worker in workers] == [0, 0]
    found = fired(store)
    assert len(found) == len(set(found))
    # The same planned time again and again: its key makes it one task for good.
    assert 1 <= len(found) <= 2
    assert sum(store.account(ids(store)).values()) == len(found)


@pytest.mark.parametrize(("missed", "expected"), [("coalesce", {1}), ("all", {6, 7}), ("skip", {0, 1})])
def test_what_was_missed_while_nobody_worked(store: World, missed: str, expected: set[int]) -> None:
    env = {**EVERY_MINUTE, "FAULT_MISSED": missed}
    first = store.worker("first", env=env)
    assert first.stop() == 0
    plan(store, 5)
    second = store.worker("second", env=env)
    until(lambda: next_run(store) > datetime.now(UTC), "the schedule has caught up")
    store.wait_completed(ids(store))
    assert len(fired(store)) in expected, fired(store)
    assert second.stop() == 0
    assert sum(store.account(ids(store)).values()) == len(fired(store))
