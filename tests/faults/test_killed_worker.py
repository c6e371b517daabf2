"""A worker dies without a word: its lease runs out, somebody else goes on, nothing is lost."""

from __future__ import annotations

import os
import signal

import pytest

from redrive.kernel.task import State
from tests.faults.harness import World, runs, until

pytestmark = pytest.mark.faults


def test_another_worker_completes_what_a_killed_one_held(store: World) -> None:
    task = store.enqueue("GATED")
    others = store.enqueue_many("QUICK", 20)
    first = store.worker("first", concurrency=2)
    first.wait_for("task.claimed", task_id=task.id)
    store.wait_effect(task, "start")
    first.kill()
    store.open()
    second = store.worker("second", concurrency=4)
    done = store.wait_state(task, State.COMPLETED)
    assert done.attempt_count == 2
    assert store.timeline(task).attempts[0].reason == "lease_expired"
    second.wait_for("task.requeued", task_id=task.id, held_by="first", expired="lease")
    store.wait_completed(others)
    assert store.account([task.id, *others]) == {"completed": 21}


def test_a_crash_uses_up_no_attempt_but_a_task_has_only_so_many_of_them(store: World) -> None:
    once = {"TASK_MAX_WORKER_DEATHS": "1"}
    task = store.enqueue("GATED", max_attempts=1, timeout=1.9, trace_id="trace-9")
    first = store.worker("first", env=once)
    store.wait_effect(task, "start")
    first.kill()
    store.open()
    second = store.worker("second", env=once)
    dead = store.wait_state(task, State.FAILED)
    assert (dead.error_reason, dead.attempt_count) == ("worker_lost", 1)
    [said] = second.wait_for("task.failed", task_id=task.id)
    assert (said["kind"], said["queue"], said["attempt"], said["trace_id"]) == ("GATED", "default", 1, "trace-9")
    assert (said["held_by"], said["worker_id"]) == ("first", "second")
    assert said["expired"] in ("lease", "time limit"), "by which it was found first"
    assert (said["level"], said["error_reason"], said["dead"]) == ("error", "worker_lost", "non_retryable")
    assert "the last one first" in said["message"]
    [letter] = store.timeline(task).dead_letters
    assert (letter.reason, letter.error_reason) == ("non_retryable", "worker_lost")
    assert store.account([task.id]) == {"failed": 1}
    assert len(store.effects("start")) == 1


def test_a_killed_worker_takes_its_handler_processes_with_it(postgres: World) -> None:
    """An orphan would go on beside the next attempt, for ever if it spins."""
    task = postgres.enqueue("SPIN", max_attempts=1)
    first = postgres.worker("first")
    [(_, _, _, pid, _)] = postgres.wait_effect(task, "start")
    assert runs(pid)
    first.kill()
    until(lambda: not runs(pid), "the handler's process is gone")
    postgres.worker("second", env={"TASK_MAX_WORKER_DEATHS": "1"})
    postgres.wait_state(task, State.FAILED)
    assert postgres.account([task.id]) == {"failed": 1}


@pytest.mark.parametrize(("kind", "stopped"), [("NATIVE", False), ("SPIN", True)], ids=["native", "stopped"])
def test_nothing_of_a_handler_needs_to_run_to_be_killed_with_its_worker(
    sqlite: World, kind: str, stopped: bool
) -> None:
    """No thread of the handler's process can: a native call holds the GIL, or the whole process was stopped."""
    task = sqlite.enqueue(kind, max_attempts=1)
    first = sqlite.worker("first")
    [(_, _, _, pid, _)] = sqlite.wait_effect(task, "start")
    left = [int(what.split()[1]) for _, _, what, _, _ in sqlite.effects() if what.startswith("started")]
    if stopped:
        os.kill(pid, signal.SIGSTOP)
    assert all(map(runs, [pid, *left])) and len(left) == (kind == "NATIVE")
    first.kill()
    until(lambda: not any(map(runs, [pid, *left])), "the handler's process is gone, with what it started")
