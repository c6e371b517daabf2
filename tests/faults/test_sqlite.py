"""What can happen to a file: killed writers, a lock that somebody holds, a disk that is full."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from uuid import UUID

import pytest

from redrive.errors import StoreUnavailable, StoreUnusable
from redrive.kernel.task import State
from tests.faults.harness import ROOT, World

pytestmark = pytest.mark.faults
LONG = {"TASK_WORKER_LEASE_MS": "600000"}
# A task is acknowledged when its id is printed, not before.
PRODUCER = """
import sys
from tests.faults.fault_app import app
while True:
    print(app.sync.enqueue("SHORT").id, flush=True)
"""


def check_file(world: World) -> None:
    assert world.sql("pragma integrity_check") == [("ok",)]


def test_writers_are_killed(sqlite: World) -> None:
    """Two workers and a producer write; one of each is killed at a moment of its own choosing."""
    workers = [sqlite.worker(name, concurrency=4) for name in ("first", "second")]
    acknowledged: list[UUID] = []
    for _ in range(2):
        producer = subprocess.Popen(
            [sys.executable, "-c", PRODUCER], cwd=ROOT, env=sqlite.environment, stdout=subprocess.PIPE, text=True
        )
        assert producer.stdout is not None
        acknowledged += [UUID(producer.stdout.readline().strip()) for _ in range(60)]
        producer.kill()
        rest = producer.stdout.read().splitlines()
        acknowledged += [UUID(line) for line in rest if len(line) == 36]
        producer.wait(10)
        producer.stdout.close()
    workers[0].kill()
    sqlite.worker("third", concurrency=4)
    check_file(sqlite)
    sqlite.wait_completed(acknowledged)
    # The last enqueue of a killed producer may have landed without being acknowledged; nothing else may be there.
    extra = {UUID(task_id) for task_id in sqlite.states()} - set(acknowledged)
    assert len(extra) <= 2
    sqlite.wait_completed(extra)
    assert sqlite.account([*acknowledged, *extra])["completed"] == len(acknowledged) + len(extra)
    check_file(sqlite)


@contextlib.contextmanager
def write_lock(world: World) -> Iterator[sqlite3.Connection]:
    """Somebody else's process would do this with a long transaction."""
    connection = sqlite3.connect(world.path, isolation_level=None, timeout=10)
    try:
        connection.execute("begin immediate")
        yield connection
        connection.execute("rollback")
    finally:
        connection.close()


def test_somebody_holds_the_write_lock(sqlite: World) -> None:
    """The worker keeps its outcome, says what is wrong, and goes on when it can."""
    task = sqlite.enqueue("GATED", max_attempts=1)
    patience = {"redrive.stores.sqlite.connect.LOCK_PATIENCE_S": 0.5}
    worker = sqlite.worker(env=LONG, constants=patience, concurrency=2)
    sqlite.wait_effect(task, "start")
    with write_lock(sqlite):
        sqlite.open()
        sqlite.wait_effect(task, "end")
        [said] = worker.wait_for("store.unavailable")
        assert "lock" in said["message"]
        assert sqlite.get(task).state is State.RUNNING
    worker.wait_for("task.completed", task_id=task.id)
    assert worker.stop() == 0
    assert worker.health["lost"] == 0
    assert sqlite.account([task.id]) == {"completed": 1}
    check_file(sqlite)


def test_the_disk_is_full(sqlite: World) -> None:
    """A file that may not grow: outcomes are kept, nothing is torn, and it goes on when there is room."""
    gated = [sqlite.enqueue("HELD", max_attempts=1) for _ in range(3)]
    worker = sqlite.worker(env=LONG, concurrency=3)
    for task in gated:
        sqlite.wait_effect(task, "end")
    _limit_files(worker.pid, 1)
    sqlite.open()
    [said] = worker.wait_for("store.unavailable")
    assert "tasks.db" in said["message"]
    assert "disk" in said["message"] or "space" in said["message"]
    assert {sqlite.get(task).state for task in gated} == {State.RUNNING}
    check_file(sqlite)
    assert worker.process.poll() is None
    _limit_files(worker.pid, None)
    sqlite.wait_completed([task.id for task in gated])
    assert worker.stop() == 0
    assert worker.health["lost"] == 0
    assert sqlite.account([task.id for task in gated]) == {"completed": 3}
    check_file(sqlite)


def test_a_producer_on_a_full_disk_is_told_so(sqlite: World) -> None:
    """What was acknowledged stays; what was refused is nowhere."""
    before = sqlite.enqueue("QUICK")
    sqlite.sql("pragma wal_checkpoint(truncate)")
    with _signals_ignored():
        _limit_files(os.getpid(), 1)
        try:
            with pytest.raises((StoreUnusable, StoreUnavailable)) as refused:
                for _ in range(50):
                    sqlite.enqueue("QUICK")
        finally:
            _limit_files(os.getpid(), None)
    assert refused.value.hint
    check_file(sqlite)
    after = sqlite.enqueue("QUICK")
    sqlite.worker()
    sqlite.wait_completed([before.id, after.id])
    assert sqlite.account([before.id, after.id]) == {"completed": 2}


def _limit_files(pid: int, size: int | None) -> None:
    """No file of this process may grow beyond ``size``: what a full disk looks like, for one process."""
    limit = resource.RLIM_INFINITY if size is None else size
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, hard))


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Writing beyond the limit also raises a signal that would end the process."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGXFSZ, before)
