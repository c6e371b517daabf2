"""Processes that have had enough are replaced without a gap: never fewer are claiming than there should be."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.faults.harness import Event, World, until

pytestmark = [pytest.mark.faults, pytest.mark.thorough]
N = 2


def claiming(events: list[Event]) -> list[int]:
    """Returns how many processes were claiming after each line of the log that changes it: a process claims from its
    first task on, or from when the store first answered it (others may have been quicker), until it says that it claims
    no more."""
    at_work: set[str] = set()
    found = []
    for event in events:
        if event["event"] == "supervisor.stopping":
            break
        if event["event"] == "task.claimed":
            at_work.add(event["worker_id"])
        elif event["event"] == "worker.relieved":
            at_work.add(event["by"])
        elif event["event"] in ("worker.draining", "worker.had_enough", "worker.stopped"):
            at_work.discard(event["worker_id"])
        else:
            continue
        found.append(len(at_work))
    return found


def test_there_are_never_fewer_than_asked_for(store: World) -> None:
    ids = store.enqueue_many("SHORT", 800, payload={"seconds": 0.05})
    fleet = store.cli_worker("--processes", str(N), "--max-jobs", "20", "--concurrency", "2", name="w", ready=False)
    gone = fleet.wait_for("worker.relieved", count=3, timeout=90)
    assert all(said["message"].split(": ")[1].startswith("it has run ") for said in gone)
    counts = claiming(fleet.events)
    begun = counts.index(N)
    assert min(counts[begun:]) == N and max(counts) > N, "the successor comes first"
    names = {said["worker_id"] for said in fleet.logged("worker.started")}
    assert {"w-1", "w-2"} < names and len(names) >= N + 3, "each has a name of its own"
    assert fleet.stop() == 0
    store.worker(concurrency=20)
    store.wait_completed(ids)
    assert store.account(ids)["completed"] == 800


def test_one_that_cannot_be_replaced_stays(sqlite: World) -> None:
    """A broken deploy: what is started from now on ends at once."""
    ids = sqlite.enqueue_many("SHORT", 200)
    broken = Path(sqlite.directory) / "broken"
    env = {"FAULT_BREAK_START": str(broken)}
    fleet = sqlite.cli_worker("--processes", str(N), "--max-time", "1", name="w", env=env, ready=False)
    fleet.wait_for("worker.started", count=N)
    broken.touch()
    fleet.wait_for("worker.crashed", count=2)
    assert not fleet.logged("worker.draining") and not fleet.logged("worker.relieved")
    sqlite.wait_completed(ids)
    broken.unlink()
    fleet.wait_for("worker.relieved")
    assert fleet.stop() == 0


def test_a_stop_while_a_successor_starts(sqlite: World) -> None:
    """SIGTERM in the midst of it: both end, the old one with what it runs handed back or done."""
    slow = Path(sqlite.directory) / "slow"
    env = {"FAULT_SLOW_START": str(slow), "TASK_WORKER_GRACE_MS": "300"}
    gated = sqlite.enqueue("GATED", max_attempts=1)
    fleet = sqlite.cli_worker("--processes", str(N), "--max-time", "1.5", name="w", env=env, ready=False)
    sqlite.wait_effect(gated, "start")
    slow.touch()
    until(lambda: Path(f"{slow}.begun").exists(), "a successor is being started")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    assert sqlite.get(gated).state == "queued" and sqlite.get(gated).attempt_count == 0


def test_memory_ends_a_process(sqlite: World) -> None:
    sqlite.enqueue("GATED")
    worker = sqlite.cli_worker("--max-memory", "1", ready=False)
    said = worker.wait_for("worker.had_enough")[0]
    assert "MB of memory, more than 1" in said["message"]
    sqlite.open()
    assert worker.wait() == 0
