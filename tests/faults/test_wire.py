"""The wire between worker and database: cut, half-open, or deaf at the worst moment."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from redrive.errors import StoreUnavailable
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.task import State
from redrive.stores.postgres import listen, pool
from redrive.stores.postgres.store import PostgresStore
from tests.faults.harness import World, runs, until
from tests.proxy import Proxy

pytestmark = pytest.mark.faults
LONG = {"TASK_WORKER_LEASE_MS": "600000"}
# The real ones are checked below; nobody wants to wait for them in a test.
SHORT = {
    "redrive.stores.postgres.pool.COMMAND_TIMEOUT_S": 0.8,
    "redrive.stores.postgres.pool.CONNECT_TIMEOUT_S": 0.8,
    "redrive.stores.postgres.listen.ECHO_EVERY_S": 0.2,
    "redrive.stores.postgres.listen.ECHO_TIMEOUT_S": 0.4,
    "redrive.worker.outage.LONGEST_RETRY_DELAY_S": 0.5,
}


def test_an_outcome_survives_a_wire_cut_between_run_and_settle(postgres: World, wire: tuple[Proxy, str]) -> None:
    proxy, url = wire
    task = postgres.enqueue("GATED", max_attempts=1)
    worker = postgres.worker(url=url, env=LONG)
    postgres.wait_effect(task, "start")
    proxy.refuse()
    proxy.cut()
    postgres.open()
    postgres.wait_effect(task, "end")
    worker.wait_for("store.unavailable")
    assert postgres.get(task).state is State.RUNNING
    proxy.restore()
    worker.wait_for("store.recovered")
    worker.wait_for("task.completed", task_id=task.id)
    assert worker.stop() == 0
    assert worker.health["lost"] == 0
    assert len(postgres.effects("start")) == 1
    assert postgres.account([task.id]) == {"completed": 1}


@pytest.mark.parametrize("kind", ["GATED", "SNOOZED", "FAILING"])
def test_a_commit_whose_answer_is_lost_is_neither_lost_nor_repeated(
    postgres: World, wire: tuple[Proxy, str], kind: str
) -> None:
    """The settle lands and the claim in the same transaction too; the worker hears of neither."""
    proxy, url = wire
    task = postgres.enqueue(kind, max_attempts=3)
    worker = postgres.worker(url=url, env=LONG)
    postgres.wait_effect(task, "start")
    following = [postgres.enqueue("QUICK", max_attempts=1).id for _ in range(3)]
    proxy.swallow_answers(b"redrive.cycle(")
    postgres.open()
    until(lambda: postgres.get(task).state is not State.RUNNING, "the settle has landed")
    until(lambda: "running" in {postgres.states()[str(i)] for i in following}, "so has the claim")
    proxy.cut()
    proxy.restore()
    postgres.wait_state(task, State.COMPLETED)
    postgres.wait_completed(following)
    assert worker.stop() == 0
    assert not worker.logged("task.lease_lost"), worker.tail()
    assert worker.health["lost"] == 0
    runs = [row for row in postgres.effects("start") if row[0] == str(task.id)]
    assert len(runs) == {"GATED": 1, "SNOOZED": 2, "FAILING": 2}[kind]
    assert postgres.get(task).attempt_count == {"GATED": 1, "SNOOZED": 1, "FAILING": 2}[kind]
    assert {postgres.get(task_id).attempt_count for task_id in following} == {1}
    snoozes = {"SNOOZED": {str(task.id): 1}}.get(kind)
    assert postgres.account([task.id, *following], handed_back=Counter(snoozes)) == {"completed": 4}


def test_a_half_open_connection_is_noticed(postgres: World, wire: tuple[Proxy, str]) -> None:
    proxy, url = wire
    worker = postgres.worker(url=url, env=LONG, constants=SHORT, concurrency=4)
    warm = postgres.enqueue("ECHO")
    postgres.wait_completed([warm.id])
    gated = postgres.enqueue("GATED", max_attempts=1)
    spinning = postgres.enqueue("SPIN", max_attempts=1, timeout=3)
    postgres.wait_effect(gated, "start")
    postgres.wait_effect(spinning, "start")
    proxy.black_hole()
    postgres.open()
    worker.wait_for("store.unavailable")
    late = [postgres.enqueue("QUICK").id for _ in range(5)]
    proxy.restore()
    worker.wait_for("store.recovered")
    postgres.wait_completed([gated.id, *late])
    dead = postgres.wait_state(spinning, State.FAILED)
    assert dead.error_reason == "timeout"
    assert worker.stop() == 0
    assert worker.health["lost"] == 0
    assert postgres.account([warm.id, gated.id, spinning.id, *late]) == {"completed": 7, "failed": 1}


def test_a_timeout_is_kept_while_the_wire_is_half_open(postgres: World, wire: tuple[Proxy, str]) -> None:
    """Deadlines do not wait for a heartbeat that hangs."""
    proxy, url = wire
    # The usual time-out of 20 s: the heartbeat (due each second) hangs all the while.
    worker = postgres.worker(url=url, env={"TASK_WORKER_LEASE_MS": "60000", "TASK_WORKER_HEARTBEAT_MS": "1000"})
    warm = postgres.enqueue("ECHO")
    postgres.wait_completed([warm.id])
    task = postgres.enqueue("SPIN", max_attempts=1, timeout=3)
    [(_, _, _, pid, _)] = postgres.wait_effect(task, "start")
    proxy.black_hole()
    until(lambda: not runs(pid), "the handler's process is killed at its timeout", timeout=15)
    proxy.cut()
    proxy.restore()
    dead = postgres.wait_state(task, State.FAILED)
    assert dead.error_reason == "timeout"
    assert worker.stop() == 0
    assert postgres.account([warm.id, task.id]) == {"completed": 1, "failed": 1}


def test_a_silently_dead_listen_is_noticed(postgres: World, wire: tuple[Proxy, str]) -> None:
    """Work goes on by polling; the echo that does not come back replaces the connection."""
    proxy, url = wire
    worker = postgres.worker(url=url, env={"TASK_WORKER_INTERVAL_MS": "60000"}, constants=SHORT, sleep=60)
    first = postgres.enqueue("QUICK")
    postgres.wait_completed([first.id])
    proxy.black_hole()
    mark = proxy.accepted
    until(lambda: proxy.accepted > mark, "the listener connects anew", timeout=15)
    proxy.cut()
    proxy.restore()
    # With a poll a minute, only a notification that arrives again can bring this about.
    second = postgres.enqueue("QUICK")
    postgres.wait_completed([second.id], timeout=15)
    assert worker.stop() == 0
    assert postgres.account([first.id, second.id]) == {"completed": 2}


@pytest.mark.anyio
async def test_a_transaction_on_a_dead_wire_is_given_up(
    postgres: World, wire: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the rollback nor the driver's attempt to cancel the statement, both without an answer, holds it up."""
    proxy, url = wire
    monkeypatch.setattr(pool, "COMMAND_TIMEOUT_S", 0.5)
    store = PostgresStore(url)
    note = Commit(audits=[Audit("ann", "NOTE")])
    await store.apply(note)
    proxy.swallow_answers(b"insert into redrive.audit")
    asked = asyncio.create_task(store.apply(note))
    while not proxy.swallowing:
        await asyncio.sleep(0.01)
    proxy.black_hole()  # also for the driver's attempt to cancel it
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(asked, 60)
    proxy.cut()
    proxy.restore()
    await store.apply(note)
    await store.close()
    assert postgres.sql("select count(*) from redrive.audit") == [(2,)]


def test_the_real_listen_constants_keep_the_promise() -> None:
    """One sleep, one notify that hangs, one echo that does not come: noticed within 15 s."""
    assert listen.ECHO_EVERY_S + 2 * listen.ECHO_TIMEOUT_S <= 15
