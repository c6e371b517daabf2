"""A worker that falls silent inside of a transaction holds its rows for a while only, and settles again."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest

from redrive import App
from redrive.errors import StoreUnavailable
from redrive.feature import Effects, Landed, State, Transition
from redrive.observe.logs import TaskLog
from redrive.settings import Options, load_settings
from redrive.stores.postgres.pool import Connection, Pool
from redrive_kit.examples.orders import ORDERS
from redrive_kit.examples.orders.reaction import react
from tests.features.conftest import placed

SETTING = "idle_in_transaction_session_timeout"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nobody wants to wait for the real time in a test; a slow machine is silent for some of it, too."""
    monkeypatch.setattr("redrive.stores.postgres.pool.LONGEST_SILENCE", "1500ms")
    yield


@pytest.mark.usefixtures("soon")
async def test_others_go_on_while_a_worker_is_stopped_inside_its_settlement(postgres_url: str) -> None:
    """To the server a loop that stands still is a process that is stopped: the reaction waits until somebody else has
    got the row that its own transaction has moved."""
    seen: list[State] = []

    def stands_still(transition: Transition, landed: Landed) -> Effects | None:
        if landed.state is State.COMPLETED:
            if not seen:
                with psycopg.connect(postgres_url, options="-c lock_timeout=60s") as other:
                    query = "select state from redrive.task where id = %s for update"
                    assert other.execute(query, [landed.task_id]).fetchone() == (State.RUNNING,)
            seen.append(landed.state)
        return react(transition, landed)

    settings = load_settings(url=postgres_url, log_format="off")
    app = App(settings=settings, features=[replace(ORDERS, react=stands_still)])
    await app.migrate()
    await placed(app)
    store, stream = await app.store(), io.StringIO()
    worker = app.worker(store, Options(stop_when_empty=True), log=TaskLog(stream, "json"))
    async with asyncio.timeout(120):
        await worker.run()
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events.count("task.completed") == 2 and "task.lease_lost" not in events  # the parcel, the order
    assert len(seen) == 2, "the settlement was sent again"
    with psycopg.connect(postgres_url) as other:
        assert other.execute("select balance from redrive.account where name = 'shop'").fetchone() == (1,)
        assert other.execute("select attempt_count, state from redrive.history").fetchall() == [(1, "completed")] * 2
    await app.close()


@pytest.mark.usefixtures("soon")
async def test_a_silent_transaction_is_undone_and_its_connection_not_used_again(postgres_url: str) -> None:
    pool = Pool(postgres_url)
    with pytest.raises(StoreUnavailable):
        async with pool.transaction() as connection:
            before = await connection.fetchval("select pg_backend_pid()")
            await asyncio.sleep(3)
            await connection.fetchval("select 1")
    assert await pool.run(lambda c: c.fetchval("select pg_backend_pid()")) != before
    await pool.close()


async def _shown(connection: Connection) -> str:
    return str(await connection.fetchval(f"show {SETTING}"))


@pytest.mark.parametrize("pooled", [False, True])
async def test_whose_transactions_are_bounded(postgres_url: str, pooled: bool) -> None:
    """Our own; not those of handlers, who may have reasons, and not where the URL says something else."""
    pool = Pool(f"{postgres_url}?pgbouncer=1" if pooled else postgres_url)
    assert pool.pooled is pooled
    assert await pool.run(_shown, atomic=True) == "5s"
    async with pool.transaction(isolation="repeatable_read", readonly=True) as connection:
        assert await _shown(connection) == "5s"
        async with connection.transaction():
            assert await _shown(connection) == "5s"
    async with pool.connection() as connection:
        assert await _shown(connection) == ("0" if pooled else "5s"), "a pooler's session is everybody's"
    async with pool.transaction(lent=True) as connection:
        assert await _shown(connection) == "0"
    await pool.close()
    told = Pool(f"{postgres_url}?{SETTING}=7s{'&pgbouncer=1' if pooled else ''}")
    assert await told.run(_shown, atomic=True) == "7s"
    await told.close()
