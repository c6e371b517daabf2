"""PostgreSQL goes away under load and comes back: the worker waits, quietly, and goes on."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from redrive.errors import RedriveError
from redrive.kernel.task import State
from tests.cluster import Cluster
from tests.faults.harness import World, handed_back, until

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("breakable")]
LONG = {"TASK_WORKER_LEASE_MS": "600000"}
QUICK_BACK = {
    "redrive.worker.outage.LONGEST_RETRY_DELAY_S": 0.5,
    "redrive.stores.postgres.listen.LONGEST_RECONNECT_DELAY_S": 0.5,
}


class Producer:
    """Enqueues one after the other and remembers what was acknowledged."""

    def __init__(self, world: World) -> None:
        self.acknowledged: list[UUID] = []
        self.doubtful = 0
        self._world = world
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.acknowledged.append(self._world.enqueue("SHORT").id)
            except RedriveError:
                self.doubtful += 1
            time.sleep(0.005)

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_is_stopped_and_started_under_load(breakable: World, breakable_server: Cluster, mode: str) -> None:
    gated = breakable.enqueue("GATED", max_attempts=1)
    worker = breakable.worker(env=LONG, constants=QUICK_BACK, concurrency=8)
    breakable.wait_effect(gated, "start")
    with Producer(breakable) as producer:
        worker.wait_for("task.completed", count=30)
        breakable_server.stop(mode)
        worker.wait_for("store.unavailable")
        breakable.open()
        breakable.wait_effect(gated, "end")
        before = worker.mark
        breakable_server.start()
        worker.wait_for("store.recovered", since=before)
        worker.wait_for("task.completed", count=30, since=before)
    assert producer.doubtful == 0, "a producer rides out a restart of a few seconds"
    ids = [gated.id, *producer.acknowledged]
    breakable.wait_completed(ids)
    assert worker.stop() == 0
    assert worker.health["lost"] == 0, worker.tail()
    assert breakable.get(gated).attempt_count == 1
    assert breakable.account(ids, handed_back=handed_back(worker))["completed"] == len(ids)


def test_a_worker_waits_without_work_or_words_while_the_server_is_down(
    breakable: World, breakable_server: Cluster
) -> None:
    """Also one that is started before its database."""
    running = breakable.worker(concurrency=4)
    breakable_server.stop("fast")
    running.wait_for("store.unavailable")
    early = breakable.worker(ready=False)
    early.wait_for("store.unavailable")
    before = running.cpu_seconds() + early.cpu_seconds()
    time.sleep(2)  # the one thing here that has no signal: nothing happens
    spent = running.cpu_seconds() + early.cpu_seconds() - before
    assert spent < 0.6, f"two idle workers burnt {spent:.2f} s of 4"
    for worker in (running, early):
        assert len(worker.logged("store.unavailable")) == 1, worker.tail()
        assert worker.mark <= 5, worker.tail()
    breakable_server.start()
    breakable.wait_alive(early)
    ids = breakable.enqueue_many("QUICK", 10)
    breakable.wait_completed(ids)
    assert (running.stop(), early.stop()) == (0, 0)
    assert breakable.account(ids) == {"completed": 10}


def test_a_stop_during_an_outage_ends_and_loses_nothing(breakable: World, breakable_server: Cluster) -> None:
    """One that runs something, and one that has never reached its store. What the first could not tell runs again."""
    gated, done = breakable.enqueue("GATED"), breakable.enqueue("GATED", {"name": "first"})
    # Long leases: handlers go on for as long as the outage. Whoever comes afterwards soon knows that they are gone.
    env = {**LONG, "TASK_WORKER_GRACE_MS": "500", "TASK_WORKER_DEAD_AFTER_MS": "1500"}
    running = breakable.cli_worker("--concurrency", "2", env=env)
    for task in (gated, done):
        breakable.wait_effect(task, "start")
    breakable_server.stop("fast")
    running.wait_for("store.unavailable")
    early = breakable.cli_worker(ready=False)
    early.wait_for("store.unavailable")
    breakable.open("first")
    breakable.wait_effect(done, "end")
    assert (running.stop(), early.stop()) == (0, 0)
    breakable_server.start()
    breakable.open()
    breakable.worker(concurrency=2, env=env)
    breakable.wait_completed([gated.id, done.id])
    assert breakable.account([gated.id, done.id]) == {"completed": 2}


def test_a_storm_of_killed_backends(breakable: World, breakable_server: Cluster) -> None:
    worker = breakable.worker(env=LONG, constants=QUICK_BACK, concurrency=8)
    with Producer(breakable) as producer, psycopg.connect(breakable_server.url(), autocommit=True) as admin:
        name = breakable.url.rsplit("/", 1)[1]
        for _ in range(8):
            done = len(worker.logged("task.completed"))
            worker.wait_for("task.completed", count=done + 10)
            admin.execute(
                "select count(pg_terminate_backend(pid)) from pg_stat_activity"
                " where datname = %s and application_name = 'redrive'",
                (name,),
            )
    assert producer.doubtful == 0
    breakable.wait_completed(producer.acknowledged)
    assert worker.stop() == 0
    assert not worker.logged("raw"), worker.tail()
    assert worker.health["lost"] == 0, worker.tail()
    ids = producer.acknowledged
    assert breakable.account(ids, handed_back=handed_back(worker))["completed"] == len(ids)


def test_no_connection_is_left(breakable: World, breakable_server: Cluster) -> None:
    gated = breakable.enqueue("GATED", max_attempts=1)
    worker = breakable.worker(env=LONG, constants=QUICK_BACK, concurrency=2)
    breakable.wait_effect(gated, "start")
    waiting = breakable.enqueue_many("QUICK", 5)
    with _every_connection(breakable_server, breakable) as held:
        assert held > 5
        [said, *_] = worker.wait_for("store.unavailable")
        assert "no connection left" in said["message"] or "cannot be used" in said["message"]
        breakable.open()
        until(lambda: breakable.effects("end"), "the handler has finished")
        before, tries = worker.mark, _refused(breakable_server)
        until(lambda: _refused(breakable_server) > tries + 2, "it goes on trying")
        time.sleep(1.5)
        # Whoever needs the store waits between two tries (QUICK_BACK): a few each, not as many as there is time for.
        assert _refused(breakable_server) - tries < 60
        assert worker.mark - before <= 2, worker.tail()
    worker.wait_for("store.recovered")
    breakable.wait_completed([gated.id, *waiting])
    assert worker.stop() == 0
    assert breakable.get(gated).state is State.COMPLETED
    assert breakable.account([gated.id, *waiting])["completed"] == 6


def _refused(server: Cluster) -> int:
    """How many connections the server has turned away."""
    return len(re.findall(r"FATAL: .*(?:too many clients|connection slots)", server.log.read_text(errors="replace")))


@contextlib.contextmanager
def _every_connection(server: Cluster, world: World) -> Iterator[int]:
    """Take all connections there are, after ending those of the worker and of the test's own application."""
    held: list[psycopg.Connection] = []
    name = world.url.rsplit("/", 1)[1]
    try:
        with psycopg.connect(server.url(), autocommit=True) as admin:
            [(all_there_are,)] = admin.execute("select current_setting('max_connections')::int").fetchall()

            def take_all() -> bool:
                with contextlib.suppress(psycopg.OperationalError):
                    while True:
                        held.append(psycopg.connect(server.url()))
                admin.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (name,))
                # Counted by ours: one that is only just let in has a connection, and is in no list of them yet.
                return len(held) + 1 == all_there_are

            until(take_all, "every connection is ours")
            yield len(held)
    finally:
        for connection in held:
            connection.close()
