"""Quotas and rates hold for the fleet, also when a member of it dies."""

from __future__ import annotations

import itertools
import time
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from tests.faults.harness import WorkerProcess, World

pytestmark = pytest.mark.faults
MARKS = "create table public.mark (task_id text, attempt integer, what text, at timestamptz)"


def intervals(world: World, ids: list[UUID]) -> list[tuple[float, float]]:
    """When each attempt ran, by the store's clock. One that was killed has no end: it counts as a moment, and what
    kept others away from it is that it began after the one before had ended, and they after its lease had."""
    wanted = {str(task_id) for task_id in ids}
    if world.postgres:
        rows = world.sql("select task_id, attempt, what, extract(epoch from at)::float from public.mark order by at")
    else:
        rows = [(task_id, attempt, what, at) for task_id, attempt, what, _, at in world.effects() if task_id in wanted]
    starts = {(task_id, attempt): at for task_id, attempt, what, at in rows if what == "start"}
    ends = {(task_id, attempt): at for task_id, attempt, what, at in rows if what == "end"}
    return sorted((at, ends.get(run, at)) for run, at in starts.items())


def test_a_quota_of_one_holds_when_a_worker_is_killed(store: World) -> None:
    if store.postgres:
        store.sql(MARKS)
    quota = {"TASK_WORKER_KIND_CONCURRENCY": '{"LIMITED": 1}'}
    workers = [store.worker(name, env=quota, concurrency=4) for name in ("first", "second")]
    ids = store.enqueue_many("LIMITED", 12)
    others = store.enqueue_many("QUICK", 12)
    victim = _holder(workers)
    victim.kill()
    store.wait_completed([*ids, *others])
    ran = intervals(store, ids)
    assert len(ran) >= 12
    for (_, end), (start, _) in itertools.pairwise(ran):
        assert start >= end, "two at once"
    assert store.account([*ids, *others]) == {"completed": 24}


def _holder(workers: list[WorkerProcess]) -> WorkerProcess:
    """Whoever runs one of them now, after a few have been done."""
    give_up = time.monotonic() + 25
    while time.monotonic() < give_up:
        for worker in workers:
            claimed = len(worker.logged("task.claimed", kind="LIMITED"))
            ended = len(worker.logged("task.completed", kind="LIMITED"))
            if claimed > ended and sum(len(w.logged("task.completed", kind="LIMITED")) for w in workers) >= 3:
                return worker
        time.sleep(0.001)
    raise AssertionError("nobody runs the limited kind")


def test_a_rate_is_kept_by_two_workers(store: World) -> None:
    """Claims are at least 150 ms apart by the store's clock; and with a poll a minute, none waits for a poll."""
    if store.postgres:
        store.sql(MARKS)
    env = {"TASK_WORKER_KIND_RATE_LIMIT_MS": '{"LIMITED": 150}', "TASK_WORKER_INTERVAL_MS": "60000"}
    workers = [store.worker(name, env=env, concurrency=4, sleep=60) for name in ("first", "second")]
    ids = store.enqueue_many("LIMITED", 14, payload={"seconds": 0.2})
    others = store.enqueue_many("QUICK", 10)
    store.wait_completed([*ids, *others])
    claimed = sorted(_when(row[0]) for row in store.sql(_last_attempts(store)))
    assert len(claimed) == 14
    for before, after in itertools.pairwise(claimed):
        assert after - before >= timedelta(milliseconds=150), f"{after - before}"
    assert [worker.stop() for worker in workers] == [0, 0]
    assert store.account([*ids, *others]) == {"completed": 24}


def _last_attempts(store: World) -> str:
    return f"select last_attempt_at from {store.table('history')} where kind = 'LIMITED'"


def _when(value: object) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromtimestamp(int(value) / 1e6)  # type: ignore[call-overload]
