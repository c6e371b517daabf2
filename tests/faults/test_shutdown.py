"""SIGTERM under load: nothing is lost, nothing is paid for, and the exit code says so."""

from __future__ import annotations

import os
import signal
import time

import pytest

from redrive.cli.support.signals import ONE_STOP_S
from redrive.kernel.task import State
from tests.faults.harness import World, handed_back, runs, until

pytestmark = pytest.mark.faults
LONG = {"TASK_WORKER_LEASE_MS": "600000", "TASK_WORKER_GRACE_MS": "500"}


def test_sigterm_under_load_completes_or_hands_back(store: World) -> None:
    """``redrive work`` itself: what is short finishes within the grace, what is not is given back unpaid."""
    endless = store.enqueue("GATED", max_attempts=1)
    ids = [endless.id, *store.enqueue_many("SHORT", 300, max_attempts=1)]
    worker = store.cli_worker("--concurrency", "8", env=LONG)
    store.wait_effect(endless, "start")
    worker.wait_for("task.completed", count=20)
    assert worker.stop() == 0
    [back] = worker.logged("task.requeued", task_id=endless.id)
    assert back["reason"] == "shutdown"
    task = store.get(endless)
    assert (task.state, task.attempt_count) == (State.QUEUED, 0)
    counts = store.account(ids, handed_back=handed_back(worker))
    assert set(counts) == {"queued", "completed"}
    left = store.sql(f"select count(*) from {store.table('task')} where attempt_count > 0")
    assert left == [(0,)]
    store.open()
    second = store.worker(concurrency=8)
    store.wait_completed(ids)
    assert store.account(ids, handed_back=handed_back(worker, second)) == {"completed": 301}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_stop_while_it_starts(sqlite: World, number: int, processes: str) -> None:
    """The application is still being imported; with a supervisor, by its children."""
    task = sqlite.enqueue("QUICK", max_attempts=1)
    slow = sqlite.directory / "slow"
    if processes == "1":
        slow.touch()
    worker = sqlite.cli_worker("--processes", processes, env={"FAULT_SLOW_START": str(slow)}, ready=False)
    if processes != "1":
        worker.wait_for("supervisor.started")
        slow.touch()
    until((sqlite.directory / "slow.begun").exists, "it imports the application")
    worker.send(number)
    assert worker.wait() == 0, worker.tail()
    assert sqlite.get(task).attempt_count == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_nothing_runs(postgres: World, number: int) -> None:
    worker = postgres.cli_worker()
    worker.send(number)
    assert worker.wait() == 0
    assert worker.logged("worker.stopped")


def test_one_stop_that_arrives_twice_is_one(store: World) -> None:
    """``timeout`` and wrappers signal the process, and then its group."""
    task = store.enqueue("GATED", max_attempts=1)
    worker = store.cli_worker(env={"TASK_WORKER_GRACE_MS": "600000"})
    store.wait_effect(task, "start")
    worker.send(signal.SIGTERM)
    worker.wait_for("worker.stopping")
    worker.send(signal.SIGTERM)
    store.open()
    assert worker.wait() == 0
    assert store.account([task.id]) == {"completed": 1}


def test_a_second_signal_exits_at_once_and_loses_nothing(postgres: World) -> None:
    ids = [postgres.enqueue("GATED").id, *postgres.enqueue_many("SHORT", 50)]
    worker = postgres.cli_worker("--concurrency", "4", env={"TASK_WORKER_GRACE_MS": "600000"})
    worker.wait_for("task.claimed", task_id=ids[0])
    worker.send(signal.SIGTERM)
    worker.wait_for("worker.stopping")
    time.sleep(2 * ONE_STOP_S)
    worker.send(signal.SIGTERM)
    assert worker.wait() not in (0, None)
    postgres.account(ids)
    postgres.open()
    postgres.worker(concurrency=8)
    postgres.wait_completed(ids)
    assert postgres.get(ids[0]).attempt_count == 2
    assert postgres.account(ids) == {"completed": 51}


def test_a_signal_to_the_whole_group_leaves_handler_processes_to_the_worker(postgres: World) -> None:
    """A service manager's SIGTERM reaches the children too: that must not count as a died process."""
    task = postgres.enqueue("SPIN", max_attempts=1)
    worker = postgres.cli_worker(env=LONG)
    [(_, _, _, pid, _)] = postgres.wait_effect(task, "start")
    os.killpg(worker.pid, signal.SIGTERM)
    assert worker.wait() == 0
    until(lambda: not runs(pid), "the handler's process is gone")
    found = postgres.get(task)
    assert (found.state, found.attempt_count) == (State.QUEUED, 0)
    assert postgres.account([task.id], handed_back=handed_back(worker)) == {"queued": 1}


def test_handlers_that_do_not_stop_do_not_keep_the_process(postgres: World) -> None:
    tasks = [postgres.enqueue(kind, max_attempts=1) for kind in ("STUBBORN", "BLOCKED")]
    worker = postgres.cli_worker("--concurrency", "2", env=LONG)
    for task in tasks:
        postgres.wait_effect(task, "start")
    assert worker.stop() == 0
    for task in tasks:
        [said] = worker.logged("task.abandoned", task_id=task.id)
        assert said["reason"] == "shutdown"
        found = postgres.get(task)
        assert (found.state, found.attempt_count) == (State.QUEUED, 0)
    assert postgres.account([task.id for task in tasks], handed_back=handed_back(worker)) == {"queued": 2}
