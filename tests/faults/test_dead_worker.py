"""Who falls silent loses his leases long before they end; who only stands still keeps them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter

import pytest

from redrive.kernel.task import State
from redrive.ops.access import Caller, Role
from redrive.ops.operator.workers import DrainChange
from tests.faults.harness import World, until

pytestmark = pytest.mark.faults
DEAD_AFTER_S = 1.5
# Leases that no test outlives: what comes back does so because its worker was declared dead.
SETTINGS = {"TASK_WORKER_LEASE_MS": "600000", "TASK_WORKER_DEAD_AFTER_MS": str(round(DEAD_AFTER_S * 1000))}


def test_what_a_killed_worker_had_runs_again_long_before_its_lease_ends(store: World) -> None:
    task = store.enqueue("GATED")
    first = store.worker("first", env={**SETTINGS, "FAULT_HOST": "elsewhere"})
    store.wait_effect(task, "start")
    second = store.worker("second", env=SETTINGS)
    first.kill()
    store.open()
    done = store.wait_state(task, State.COMPLETED)
    assert done.attempt_count == 2
    [said] = second.wait_for("worker.declared_dead")  # written after what it tells of: others may be quicker
    assert (said["dead"], said["tasks"]) == ("first", 1)
    second.wait_for("task.requeued", task_id=task.id, held_by="first")
    assert store.account([task.id]) == {"completed": 1}


def test_whoever_is_left_takes_over_from_all_others(store: World) -> None:
    """Most of the fleet is gone, which may be the network: it takes longer, and no task is blamed for it."""
    tasks = [store.enqueue("GATED", max_attempts=1) for _ in range(4)]
    dead = [store.worker(f"w{n}", env={**SETTINGS, "FAULT_HOST": f"host{n}"}, concurrency=2) for n in range(2)]
    for task in tasks:
        store.wait_effect(task, "start")
    for worker in dead:
        worker.kill()
    last = store.worker("last", env=SETTINGS)
    store.open()
    store.wait_completed([task.id for task in tasks], timeout=60)
    assert {(said["dead"], said["cut_off"]) for said in last.wait_for("worker.declared_dead", count=2)} == {
        ("w0", True),
        ("w1", True),
    }
    assert {store.get(task).attempt_count for task in tasks} == {1}
    handed_back = Counter(str(task.id) for task in tasks)
    assert store.account([task.id for task in tasks], handed_back=handed_back) == {"completed": 4}


def test_processes_that_are_gone_from_this_machine_are_not_waited_for(store: World) -> None:
    """Neither a lease nor a beat that is missing could tell of it before the end of this test."""
    settings = {**SETTINGS, "TASK_WORKER_DEAD_AFTER_MS": "600000"}
    tasks = [store.enqueue("GATED") for _ in range(4)]
    dead = [store.worker(f"w{n}", env=settings, concurrency=2) for n in range(2)]
    for task in tasks:
        store.wait_effect(task, "start")
    for worker in dead:
        worker.kill()
        worker.wait()
    store.open()
    last = store.worker("last", env=settings)
    store.wait_completed([task.id for task in tasks], timeout=60)
    assert {said["dead"] for said in last.wait_for("worker.buried", count=2)} == {"w0", "w1"}
    assert {store.get(task).attempt_count for task in tasks} == {2}
    assert store.account([task.id for task in tasks]) == {"completed": 4}


def test_a_process_that_takes_the_name_over_frees_what_the_first_had(store: World) -> None:
    task = store.enqueue("GATED")
    named = {**SETTINGS, "TASK_WORKER_ID": "named"}
    first = store.worker("first", env=named, ready=False)
    store.wait_effect(task, "start")
    first.kill()
    store.open()
    store.worker("second", env=named, ready=False)
    assert store.wait_state(task, State.COMPLETED).attempt_count == 2
    assert store.account([task.id]) == {"completed": 1}


def test_a_worker_that_was_stopped_hears_that_it_lost_its_leases(store: World) -> None:
    task = store.enqueue("GATED")
    first = store.worker("first", env=SETTINGS)
    store.wait_effect(task, "start")
    second = store.worker("second", env=SETTINGS)
    first.send(signal.SIGSTOP)
    second.wait_for("worker.declared_dead", dead="first")
    store.wait_effect(task, "start", count=2)
    first.send(signal.SIGCONT)
    first.wait_for("worker.cut_off")
    first.wait_for("task.lease_lost", task_id=task.id)
    store.open()
    done = store.wait_state(task, State.COMPLETED)
    assert done.attempt_count == 2
    assert first.stop() == 0
    assert first.health["lost"] == 1
    assert store.account([task.id]) == {"completed": 1}
    assert len(store.effects("end")) == 1


def test_a_worker_whose_loop_stands_still_keeps_its_leases(store: World) -> None:
    """Also a lease that ends meanwhile, if nobody renewed it."""
    settings = {**SETTINGS, "TASK_WORKER_LEASE_MS": "3000"}
    task = store.enqueue("HOLDS_LOOP")
    first = store.worker("first", env=settings)
    store.wait_effect(task, "start")
    second = store.worker("second", env=settings)
    expires = until(lambda: store.get(task).lease_expires_at, "it has a lease")
    until(lambda: (store.get(task).lease_expires_at or expires) > expires, "its lease was renewed")
    time.sleep(2 * DEAD_AFTER_S + 1.5)
    store.open()
    assert store.wait_state(task, State.COMPLETED).attempt_count == 1
    assert not second.logged("worker.declared_dead")
    assert not first.logged("task.lease_lost")
    assert store.account([task.id]) == {"completed": 1}


def test_a_supervisor_has_the_tasks_of_a_crashed_child_taken_back_at_once(store: World) -> None:
    """Nobody else could know it before the end of this test: neither by a lease nor by a beat that is missing."""
    settings = {**SETTINGS, "TASK_WORKER_DEAD_AFTER_MS": "600000"}
    task = store.enqueue("GATED")
    fleet = store.cli_worker("--processes", "2", name="fleet", env=settings, ready=False)
    [(_, _, _, pid, _)] = store.wait_effect(task, "start")
    os.kill(pid, signal.SIGKILL)
    store.open()
    assert store.wait_state(task, State.COMPLETED).attempt_count == 2
    [said] = fleet.wait_for("worker.buried")
    assert (said["tasks"], said["worker_id"] in ("fleet-1", "fleet-2")) == (1, True)
    assert fleet.stop() == 0
    assert store.account([task.id]) == {"completed": 1}


@pytest.mark.thorough
def test_one_that_kills_its_workers_fails_alone(store: World) -> None:
    """Its neighbours are delayed, and all of them complete, although each may be tried but once."""
    settings = {**SETTINGS, "TASK_WORKER_BACKOFF_BASE_MS": "50", "TASK_WORKER_DEAD_AFTER_MS": "600000"}
    good = store.enqueue_many("SHORT", 30, max_attempts=1)
    poison = store.enqueue("POISON", max_attempts=10)
    good += store.enqueue_many("SHORT", 30, max_attempts=1)
    fleet = store.cli_worker("--processes", "2", "--concurrency", "20", name="fleet", env=settings, ready=False)
    dead = store.wait_state(poison, State.FAILED, timeout=60)
    assert (dead.error_reason, dead.attempt_count) == ("worker_lost", 3)
    assert "3 workers were lost while they ran it" in (dead.error_message or "")
    store.wait_completed(good, timeout=60)
    assert len(fleet.wait_for("worker.crashed", count=3)) == 3
    fleet.wait_for("task.suspected", task_id=poison.id)
    fleet.send(signal.SIGTERM)
    fleet.wait(60)
    assert store.account([poison.id, *good]) == {"completed": 60, "failed": 1}


def test_a_worker_that_is_asked_to_drain_finishes_what_it_runs(store: World) -> None:
    """However long that takes: its grace is over long before."""
    task = store.enqueue("GATED")
    worker = store.worker("first", env={**SETTINGS, "TASK_WORKER_GRACE_MS": "100"})
    store.wait_effect(task, "start")
    done = store.app.sync._portal.call(_drain(store))
    assert (done.asked, done.already) == (["first"], [])
    worker.wait_for("worker.draining")
    later = store.enqueue("QUICK")
    time.sleep(0.5)
    store.open()
    assert store.wait_state(task, State.COMPLETED).attempt_count == 1
    assert worker.wait() == 0
    assert store.get(later).state is State.QUEUED
    assert store.account([task.id, later.id]) == {"completed": 1, "queued": 1}


async def _drain(store: World) -> DrainChange:
    operator = await store.app.operator(Caller("ann", Role.OPERATOR))
    return await operator.workers.drain_all("a new machine")
