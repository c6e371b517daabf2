"""Handlers that block, spin, die or do not listen."""

from __future__ import annotations

import os
import signal

import pytest

from redrive.kernel.task import State
from tests.faults.harness import World, runs, until

pytestmark = pytest.mark.faults
LONG = {"TASK_WORKER_LEASE_MS": "600000"}
SHORT_GRACE = {"redrive.worker.lease.STOP_GRACE_S": 0.3}


def test_a_thread_does_not_block_the_loop(store: World) -> None:
    """While it blocks, other tasks complete and its own lease (2 s) is renewed."""
    blocked = store.enqueue("BLOCKED", max_attempts=1)
    worker = store.worker(concurrency=2)
    store.wait_effect(blocked, "start")
    first = store.get(blocked).lease_expires_at
    ids = store.enqueue_many("SHORT", 20)
    store.wait_completed(ids)
    until(lambda: (store.get(blocked).lease_expires_at or first) > first, "the lease is renewed")
    store.open()
    store.wait_state(blocked, State.COMPLETED)
    assert worker.stop() == 0
    assert store.account([blocked.id, *ids]) == {"completed": 21}


def test_a_process_is_killed_at_its_timeout_and_tried_again(store: World) -> None:
    worker = store.worker(env=LONG)
    warm = store.enqueue("ECHO")
    store.wait_completed([warm.id])  # a timeout includes starting a process, which takes as long as it takes
    task = store.enqueue("SPIN", max_attempts=2, timeout=1.5)
    store.wait_effect(task, "start")
    [again] = worker.wait_for("task.requeued", task_id=task.id)
    assert again["error_reason"] == "timeout"
    dead = store.wait_state(task, State.FAILED)
    assert (dead.error_reason, dead.failure_type, dead.attempt_count) == ("timeout", "timeout", 2)
    for task_id, _, _, pid, _ in store.effects("start"):
        assert task_id == str(warm.id) or not runs(pid)
    assert worker.stop() == 0
    assert store.account([warm.id, task.id]) == {"completed": 1, "failed": 1}


def test_a_process_that_dies_is_a_failed_attempt(postgres: World) -> None:
    """By its own hand, by somebody's signal; the next task gets a new process."""
    leaves = postgres.enqueue("EXIT", max_attempts=2)
    killed = postgres.enqueue("SPIN", max_attempts=1)
    worker = postgres.worker(env=LONG, concurrency=2)
    [(_, _, _, pid, _)] = postgres.wait_effect(killed, "start")
    os.kill(pid, signal.SIGKILL)
    for task, how in ((leaves, "exit code 3"), (killed, "SIGKILL")):
        dead = postgres.wait_state(task, State.FAILED)
        assert dead.error_reason == "process_died"
        assert how in (dead.error_message or "")
    assert [a.reason for a in postgres.timeline(leaves).attempts] == ["process_died"] * 2
    # A payload that fills the pipe many times over: the loop goes on while it is sent.
    large = postgres.enqueue("ECHO", {"text": "x" * 900_000})
    done = postgres.wait_state(large, State.COMPLETED)
    assert done.result == 900_000
    assert worker.stop() == 0
    assert postgres.account([leaves.id, killed.id, large.id]) == {"failed": 2, "completed": 1}


def test_handlers_that_do_not_stop_are_fenced_off(store: World) -> None:
    tasks = [store.enqueue(kind, max_attempts=1, timeout=0.5) for kind in ("STUBBORN", "BLOCKED")]
    worker = store.worker(env=LONG, constants=SHORT_GRACE, concurrency=2)
    for task in tasks:
        [said] = worker.wait_for("task.abandoned", task_id=task.id)
        assert (said["level"], said["reason"]) == ("error", "timeout")
        assert store.wait_state(task, State.FAILED).error_reason == "timeout"
    # Their slots are free again, and what they say in the end changes nothing.
    others = store.enqueue_many("QUICK", 4)
    store.wait_completed(others)
    store.open()
    for task in tasks:
        store.wait_effect(task, "end")
        worker.wait_for("task.late", task_id=task.id)
        assert store.get(task).state is State.FAILED
    assert worker.stop() == 0
    assert (worker.health["abandoned"], worker.health["late"]) == (2, 2)
    assert store.account([*(task.id for task in tasks), *others]) == {"failed": 2, "completed": 4}


def test_running_tasks_are_cancelled(store: World) -> None:
    """On the loop, in a thread, in a process, and one that swallows it."""
    tasks = {kind: store.enqueue(kind, max_attempts=1) for kind in ("GATED", "GATED_THREAD", "SPIN", "STUBBORN")}
    # A beat a minute: the request itself must reach the worker.
    env = {**LONG, "TASK_WORKER_INTERVAL_MS": "60000"}
    worker = store.worker(env=env, constants=SHORT_GRACE, sleep=60, concurrency=4)
    pids = {kind: store.wait_effect(task, "start")[0][3] for kind, task in tasks.items()}
    for task in tasks.values():
        store.app.sync.cancel(task.id, actor="ann", reason="no longer wanted")
        store.wait_state(task, State.CANCELLED)
        worker.wait_for("task.cancelled", task_id=task.id)
        assert [row.action for row in store.timeline(task).audit] == ["TASK_CANCEL_REQUEST"]
    assert not runs(pids["SPIN"])
    assert [event["kind"] for event in worker.logged("task.abandoned")] == ["STUBBORN"]
    assert worker.stop() == 0
    assert not store.effects("end")
    assert store.account([task.id for task in tasks.values()]) == {"cancelled": 4}
