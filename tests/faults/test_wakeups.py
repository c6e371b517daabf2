"""Nobody waits for a poll: with a minute between polls and beats, everything still runs when it is due."""

from __future__ import annotations

import subprocess
import sys
from uuid import UUID

import pytest

from redrive.kernel.task import State
from tests.faults.harness import ROOT, World, handed_back

pytestmark = pytest.mark.faults
MINUTE = {"TASK_WORKER_INTERVAL_MS": "60000", "TASK_WORKER_RECOVERY_INTERVAL_MS": "60000"}
BY_ANOTHER = """
from tests.faults.fault_app import app
print(app.sync.enqueue({kind!r}, delay={delay!r}).id)
app.sync.close()
"""


def enqueue_elsewhere(world: World, kind: str, delay: float | None = None) -> str:
    """Another process enqueues one task and ends."""
    done = subprocess.run(
        [sys.executable, "-c", BY_ANOTHER.format(kind=kind, delay=delay)],
        cwd=ROOT,
        env=world.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=90,
    )
    return done.stdout.strip()


def test_delayed_retried_and_snoozed_tasks_run_when_due(store: World) -> None:
    worker = store.worker(env=MINUTE, sleep=60, concurrency=2)
    delayed = store.enqueue("QUICK", delay=0.6)
    retried = store.enqueue("FLAKY", {"times": 2})
    snoozed = store.enqueue("SNOOZER", {"seconds": 0.4})
    ids = [delayed.id, retried.id, snoozed.id]
    store.wait_completed(ids, timeout=45)
    assert [store.get(i).attempt_count for i in ids] == [1, 3, 1]
    late = store.get(delayed)
    assert late.last_attempt_at and late.created_at
    assert (late.last_attempt_at - late.created_at).total_seconds() >= 0.6
    assert worker.stop() == 0
    assert store.account(ids, handed_back=handed_back(worker)) == {"completed": 3}


def test_an_enqueue_of_another_process_wakes_an_idle_worker(store: World) -> None:
    worker = store.worker(env=MINUTE, sleep=60)
    first = store.enqueue("QUICK")
    store.wait_completed([first.id], timeout=45)
    now = enqueue_elsewhere(store, "QUICK")
    worker.wait_for("task.completed", task_id=now, timeout=45)
    later = enqueue_elsewhere(store, "QUICK", delay=0.5)
    worker.wait_for("task.completed", task_id=later, timeout=45)
    assert worker.stop() == 0
    assert store.account([first.id, UUID(now), UUID(later)]) == {"completed": 3}


def test_a_freed_place_wakes_the_worker_that_waits_for_it(store: World) -> None:
    """A quota is full: whoever has to wait hears when it is not."""
    env = {**MINUTE, "TASK_WORKER_KIND_CONCURRENCY": '{"GATED": 1}'}
    store.worker("first", env=env, sleep=60)
    held = store.enqueue("GATED", {"name": "one"})
    store.wait_effect(held, "start")
    second = store.worker("second", env=env, sleep=60)
    # The first worker is kept busy, so that the second one has to take the freed place.
    waiting = store.enqueue("GATED", {"name": "two"})
    blocker = store.enqueue("SHORT", {"seconds": 0.1})
    store.wait_completed([blocker.id], timeout=45)
    store.open("one")
    store.wait_state(held, State.COMPLETED)
    store.open("two")
    store.wait_state(waiting, State.COMPLETED, timeout=45)
    assert second.process.poll() is None
    assert store.account([held.id, waiting.id, blocker.id]) == {"completed": 3}
