"""A lease runs out while its handler finishes: both orders, and whoever is late changes nothing."""

from __future__ import annotations

import signal

import pytest

from redrive.kernel.task import State
from tests.faults.harness import World

pytestmark = pytest.mark.faults
LONG = {"TASK_WORKER_LEASE_MS": "60000"}


def test_a_late_finish_counts_if_nobody_recovered_the_task(store: World) -> None:
    task = store.enqueue("GATED")
    worker = store.worker("first", env={**LONG, "TASK_WORKER_RECOVERY_INTERVAL_MS": "600000"})
    store.wait_effect(task, "start")
    store.expire_lease(task)
    store.open()
    done = store.wait_state(task, State.COMPLETED)
    assert done.attempt_count == 1
    assert worker.stop() == 0
    assert (worker.health["lost"], worker.health["completed"]) == (0, 1)
    assert store.account([task.id]) == {"completed": 1}


def test_a_finish_after_recovery_is_refused(store: World) -> None:
    """The first worker does not know that it lost its lease when it commits."""
    task = store.enqueue("GATED")
    first = store.worker(
        "first", env={**LONG, "TASK_WORKER_INTERVAL_MS": "60000", "TASK_WORKER_RECOVERY_INTERVAL_MS": "200"}, sleep=60
    )
    store.wait_effect(task, "start")
    second = store.worker("second", env=LONG)
    store.expire_lease(task)
    second.wait_for("task.claimed", task_id=task.id)
    store.open("all-first")
    [event] = first.wait_for("task.lease_lost", task_id=task.id)
    assert (event["outcome"], event["attempt"]) == ("complete", 1)
    held = store.get(task)
    assert (held.state, held.worker_id, held.attempt_count) == (State.RUNNING, "second", 2)
    store.open("all-second")
    done = store.wait_state(task, State.COMPLETED)
    assert (done.worker_id, done.attempt_count) == ("second", 2)
    assert (first.stop(), second.stop()) == (0, 0)
    assert (first.health["lost"], first.health["completed"], second.health["completed"]) == (1, 0, 1)
    assert store.account([task.id]) == {"completed": 1}


def test_a_handler_is_told_that_its_lease_is_lost(store: World) -> None:
    """The first worker stands still (a long pause of its machine), and hears of the loss by its heartbeat."""
    task = store.enqueue("GATED")
    first = store.worker("first")
    store.wait_effect(task, "start")
    store.freeze(first)
    second = store.worker("second", env=LONG)  # nor does it lose the task in its turn, on a busy machine
    second.wait_for("task.claimed", task_id=task.id)
    first.send(signal.SIGCONT)
    [event] = first.wait_for("task.lease_lost", task_id=task.id)
    assert event["level"] == "warning"
    held = store.get(task)
    assert (held.state, held.worker_id) == (State.RUNNING, "second")
    store.open()
    store.wait_state(task, State.COMPLETED)
    assert (first.stop(), second.stop()) == (0, 0)
    assert (first.health["lost"], first.health["completed"], second.health["completed"]) == (1, 0, 1)
    assert len(store.effects("end")) == 1
    assert store.account([task.id]) == {"completed": 1}
