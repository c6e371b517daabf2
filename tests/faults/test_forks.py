"""Handlers that call fork(): the copy of the worker ends, and the worker does not notice."""

from __future__ import annotations

import psutil
import pytest

from redrive.kernel.task import State
from tests.faults.harness import World, until

pytestmark = pytest.mark.faults


@pytest.mark.parametrize(
    "kind",
    [
        "FORK_LOOP",
        "FORK_LOOP_WAITS",
        "FORK_LOOP_EXITS",
        "FORK_THREAD",
        "FORK_PROCESS",
        "FORK_TO_THREAD",
        "FORK_SUBTASK",
        "FORK_DETACHED",
    ],
)
def test_a_fork_in_a_handler_does_not_become_a_second_worker(store: World, kind: str) -> None:
    task = store.enqueue(kind, max_attempts=1)
    worker = store.worker(concurrency=2)
    done = store.wait_state(task, State.COMPLETED)
    assert (done.result, done.attempt_count) == ("parent", 1)
    # The child has ended by itself, without a word to the store.
    store.wait_effect(task, "end")
    others = store.enqueue_many("QUICK", 30)
    store.wait_completed(others)
    assert worker.stop() == 0
    assert (worker.health["completed"], worker.health["lost"], worker.health["reconnects"]) == (31, 0, 0)
    assert store.account([task.id, *others]) == {"completed": 31}


def test_a_child_that_came_back_is_no_zombie_for_good(store: World) -> None:
    task = store.enqueue("FORK_FORGETS", max_attempts=1)
    worker = store.worker(constants={"redrive.worker.forks.REAP_AFTER_S": 0.1})
    assert store.wait_state(task, State.COMPLETED).result == "parent"
    process = psutil.Process(worker.process.pid)
    until(lambda: not process.children(), "nothing is left of what it forked")
    assert worker.stop() == 0


@pytest.mark.parametrize("kind", ["POOL_THREAD", "POOL_PROCESS"])
def test_ending_what_a_handler_forked_does_not_stop_the_worker(store: World, kind: str) -> None:
    """The signal is for the child alone, which has no part in how the worker hears of its own."""
    tasks = [store.enqueue(kind, max_attempts=1) for _ in range(3)]
    worker = store.cli_worker("--concurrency", "1")
    for task in tasks:
        assert store.wait_state(task, State.COMPLETED).result == 14
    assert not worker.logged("worker.stopping")
    assert worker.stop() == 0
    assert store.account([task.id for task in tasks]) == {"completed": 3}
