"""What only PostgreSQL can get wrong: dead rows, late commits, statement counts, the caller's own errors."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.commit import Commit, Target
from redrive.kernel.outcome import Completed, Retry
from redrive.kernel.ports.store import Heartbeat
from redrive.kernel.task import State
from redrive.stores.postgres import pool as pool_module
from redrive.stores.postgres.pool import Connection, Pool
from redrive_kit.conformance.harness import LEASE, Harness, failing
from redrive_kit.conformance.limits import limit_of
from redrive_kit.conformance.wakes import ears, ready
from tests.conformance.harness_postgres import PostgresHarness

pytestmark = pytest.mark.anyio


class TestDeadRows:
    """A long transaction elsewhere keeps vacuum from removing what was claimed. Invariant 7 holds nevertheless."""

    @pytest.fixture
    async def harness(self, fresh_store_url: str) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(fresh_store_url)
        yield harness
        await harness.close()

    @pytest.mark.parametrize("limited", [False, True], ids=["open lane", "lanes"])
    async def test_invariant_7_a_claim_does_not_walk_dead_entries(
        self, harness: PostgresHarness, limited: bool
    ) -> None:
        if limited:
            await harness.limit("A", concurrency=500)
        reader = await asyncpg.connect(harness.url)
        async with reader.transaction(isolation="repeatable_read"):
            await reader.fetchval("select count(*) from redrive.task")
            await harness.enqueue_many(4000)
            while claimed := await harness.claim(400):
                await harness.settle_many([(task, Completed()) for task in claimed])
            await harness.enqueue_many(20)
            await harness.claim(5)
            harness.store.positions._next_sweep = math.inf  # on a slow machine one is due just now
            async with harness.measure(harness.store) as cost:
                assert len(await harness.claim(5)) == 5
            assert cost.rows < 200, cost.rows
        await reader.close()

    async def test_a_tick_does_not_walk_dead_entries(self, harness: PostgresHarness) -> None:
        """Nor does the look for expired leases: both start where an earlier tick had seen everything."""
        reader = await asyncpg.connect(harness.url)
        async with reader.transaction(isolation="repeatable_read"):
            await reader.fetchval("select count(*) from redrive.task")
            await harness.enqueue_many(2000, delay=0.001)
            promoted = 0
            while promoted < 2000:
                promoted += (await harness.tick()).promoted
            while claimed := await harness.claim(400, lease=0.001):
                await harness.settle_many([(task, Completed()) for task in claimed])
            await harness.tick()
            now = (await harness.store.overview()).now  # what the next minute brings
            harness.store.ticks.checked = {
                queues: (now, full) for queues, (_, full) in harness.store.ticks.checked.items()
            }
            async with harness.measure(harness.store) as cost:
                await harness.store.expired(50)
                await harness.tick()
            assert cost.rows < 200, cost.rows
        await reader.close()

    async def test_workers_of_other_queues_that_share_a_store(self, harness: PostgresHarness) -> None:
        """What one of them has looked through is not what another has."""
        await harness.enqueue(queue="b", delay=600)
        await harness.advance(1200)
        for _ in range(2):
            assert (await harness.store.tick(Heartbeat("w1", "host", 1, ("a",), 4, 0, "0", {}, False))).promoted == 0
        assert (await harness.store.tick(Heartbeat("w2", "host", 1, ("b",), 4, 0, "0", {}, False))).promoted == 1

    async def test_a_worker_that_never_claims_does_not_walk_them_either(self, harness: PostgresHarness) -> None:
        idle = await harness.another()
        woken = await ears(idle, "default", "last")
        reader = await asyncpg.connect(harness.url)
        async with reader.transaction(isolation="repeatable_read"):
            await reader.fetchval("select count(*) from redrive.task")
            for _ in range(20):
                await harness.enqueue_many(100)
            while claimed := await harness.claim(400):
                await harness.settle_many([(task, Completed()) for task in claimed])
            await harness.enqueue(queue="last")
            await woken.hear(lambda wake: wake.queue == "last")
            assert await harness.claim(5, store=idle) == []  # the sweep that all of them pay once
            idle.positions._next_sweep = float("inf")  # type: ignore[attr-defined]
            async with harness.measure(idle) as cost:
                assert await harness.claim(5, store=idle) == []
            assert cost.rows < 200, cost.rows
        await reader.close()


CLAIM = """
select id from redrive.cycle(null, null, null, null, null, false, 'raw', gen_random_uuid(), 60, 1, array['default'],
  null, null, array['default'], array[''], array[-32768], array[0], array[32767])
"""


class TestOpenClaims:
    """The other side is in the middle of a claim: it has decided, but not committed."""

    @pytest.fixture
    async def other(self, harness: PostgresHarness) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(harness.url)
        yield connection
        connection.terminate()

    async def waiting(self, harness: PostgresHarness, work: asyncio.Task[Any]) -> bool:
        """Whether ``work`` comes to wait for a lock instead of ending."""
        while not work.done():
            rows = await harness.sql(
                "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            )
            if rows:
                return True
            await asyncio.sleep(0.01)
        return False

    @pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate_ms": 60_000}], ids=["quota", "rate"])
    @pytest.mark.parametrize("commits", [True, False])
    async def test_the_last_place_is_decided_under_a_lock(
        self, harness: PostgresHarness, other: Any, limit: dict[str, int], commits: bool
    ) -> None:
        await harness.limit("K", **limit)
        await harness.enqueue_many(3, "K")
        transaction = other.transaction()
        await transaction.start()
        assert len(await other.fetch(CLAIM)) == 1
        claim = asyncio.create_task(harness.claim(2))
        assert await self.waiting(harness, claim)
        await (transaction.commit() if commits else transaction.rollback())
        assert len(await claim) == (0 if commits else 1)

    @pytest.mark.parametrize("target, name", [(Target.QUEUE, "default"), (Target.KIND, "K"), (Target.GROUP, "g")])
    async def test_a_pause_returns_after_claims_that_came_first(
        self, harness: PostgresHarness, other: Any, target: Target, name: str
    ) -> None:
        await harness.enqueue_many(3, "K", group="g")
        transaction = other.transaction()
        await transaction.start()
        assert len(await other.fetch(CLAIM)) == 1
        pause = asyncio.create_task(harness.hold(target, name))
        assert await self.waiting(harness, pause)
        await transaction.commit()
        await pause
        assert await harness.claim(3) == []

    async def test_a_new_quota_counts_claims_that_came_first(self, harness: PostgresHarness, other: Any) -> None:
        await harness.enqueue_many(3, "K")
        transaction = other.transaction()
        await transaction.start()
        assert len(await other.fetch(CLAIM)) == 1
        limiting = asyncio.create_task(harness.limit("K", concurrency=1))
        assert await self.waiting(harness, limiting)
        await transaction.commit()
        await limiting
        assert await harness.claim(3) == []


class TestOwnIds:
    """A producer that calls the function may choose the id of its task."""

    ONE = "select redrive.enqueue('A', '{}', id => $1)"
    CALLS = (
        ONE,
        "select redrive.enqueue('A', '{}', id => $1, delay => '1 second')",
        "select redrive.enqueue('A', '{}', id => $1, idempotency_key => 'another')",
        "select * from redrive.enqueue(array[$1::uuid], array['A'], array['default'], array['{}'::jsonb],"
        " array[0], array[5], null, null, null, null, null, null, null)",
    )

    @pytest.mark.parametrize("call", CALLS)
    async def test_the_id_of_a_finished_task_is_not_used_again(self, harness: PostgresHarness, call: str) -> None:
        chosen = UUID("00000000-0000-7000-8000-000000000001")
        own = await asyncpg.connect(harness.url)
        await own.fetchval("select redrive.enqueue('A', '{}', id => $1, idempotency_key => 'k')", chosen)
        await harness.settle(await harness.claim_one(), Completed())
        with pytest.raises(asyncpg.UniqueViolationError):
            await own.fetch(call, chosen)
        assert await harness.sql("select count(*) from redrive.task") == [(0,)]
        assert await own.fetchval(self.ONE, UUID(int=7)) == UUID(int=7)
        await own.close()

    async def test_a_call_repeated_with_its_key_answers_its_task(self, harness: PostgresHarness) -> None:
        """A client that lost the answer, with an id of these minutes or an old one; the task waits, or is done."""
        call = "select redrive.enqueue('A', '{}', id => $1, idempotency_key => $2)"
        own = await asyncpg.connect(harness.url)
        for chosen in (new_id(), UUID(int=9)):
            for _ in range(3):
                assert await own.fetchval(call, chosen, str(chosen)) == chosen
            await harness.settle(await harness.claim_one(), Completed())
            assert await own.fetchval(call, chosen, str(chosen)) == chosen
            assert await harness.claim(5) == []
            with pytest.raises(asyncpg.UniqueViolationError, match="another kind, queue or payload"):
                await own.fetchval(call.replace("'A'", "'B'"), chosen, str(chosen))
        await own.close()

    async def test_a_known_key_answers_whatever_the_id(self, harness: PostgresHarness) -> None:
        done = UUID(int=5)
        own = await asyncpg.connect(harness.url)
        await own.fetchval(self.ONE, done)
        await harness.settle(await harness.claim_one(), Completed())
        first = await own.fetchval("select redrive.enqueue('A', '{}', idempotency_key => 'k')")
        again = await own.fetchval("select redrive.enqueue('A', '{}', idempotency_key => 'k', id => $1)", done)
        assert again == first
        await own.close()

    async def test_fresh_ids_are_those_of_now(self, harness: PostgresHarness) -> None:
        fresh = "select $1::uuid between redrive.id_from(-600) and redrive.id_from(600)"
        own = await asyncpg.connect(harness.url)
        assert await own.fetchval(fresh, await own.fetchval("select redrive.new_id()"))
        assert await own.fetchval(fresh, new_id())
        for far in (UUID(int=0), UUID(int=2**128 - 1), uuid4()):
            assert not await own.fetchval(fresh, far)
        await own.close()


class TestLateCommits:
    async def test_a_producer_that_commits_late_is_announced(self, harness: PostgresHarness) -> None:
        """Its task has an older position than what this worker has already read past."""
        heard = await ears(harness.store, "default", "marker")
        slow = await asyncpg.connect(harness.url)
        transaction = slow.transaction()
        await transaction.start()
        late = await slow.fetchval("select redrive.enqueue('LATE', '{}')")
        await harness.enqueue_many(3)
        assert len(await harness.claim(3)) == 3
        # Full claims: the worker is busy and has no reason to sweep.
        await harness.enqueue_many(3)
        assert len(await harness.claim(3)) == 3
        # Hints arrive in the order of commits: behind this one, none of the six can be taken for the late one's.
        other = await asyncpg.connect(harness.url)
        await other.fetchval("select redrive.enqueue('MARKER', '{}', queue => 'marker')")
        await other.close()
        await heard.hear(lambda wake: wake.queue == "marker")
        heard.forget()
        await transaction.commit()
        await heard.hear(ready("default"))
        assert [task.id for task in await harness.claim(1)] == [late]
        await slow.close()

    async def test_without_hints_a_sweep_finds_it(self, harness: PostgresHarness) -> None:
        slow = await asyncpg.connect(harness.url)
        transaction = slow.transaction()
        await transaction.start()
        late = await slow.fetchval("select redrive.enqueue('LATE', '{}')")
        await harness.enqueue_many(6)
        await harness.claim(3)
        await transaction.commit()
        harness.store.positions._next_sweep = 0.0  # what time does by itself within a second
        assert [task.id for task in await harness.claim(1)] == [late]
        await slow.close()


class TestDue:
    async def test_a_tick_promotes_for_its_own_queues_and_a_duty_for_the_rest(self, harness: PostgresHarness) -> None:
        mine, other = await harness.enqueue(delay=5), await harness.enqueue(queue="other", delay=5)
        assert (await harness.tick()).next_due is not None
        await harness.advance(6)
        assert (await harness.tick()).promoted == 1
        assert [await harness.state(i) for i in (mine, other)] == [State.QUEUED, State.DELAYED]
        assert (await harness.tick()).next_due is None
        assert await harness.store.upkeep("promote") == 1
        assert await harness.state(other) is State.QUEUED
        await harness.check_totals()

    async def test_a_hint_names_the_queue(self, harness: PostgresHarness) -> None:
        heard = await ears(harness.store, "other", "third")
        await harness.enqueue(queue="other", delay=1)
        await heard.hear(lambda wake: wake.queue == "other" and wake.due_in is not None)
        claimed = await harness.running(queue="third")
        await harness.settle(claimed, Retry(after=2))
        await heard.hear(lambda wake: wake.queue == "third" and wake.due_in is not None)


class TestStatements:
    async def test_each_hot_verb_is_one_statement(self, harness: PostgresHarness) -> None:
        store = harness.store
        await harness.enqueue_many(30)
        await harness.claim(10)  # the driver asks for types once per connection
        async with harness.measure(store) as cost:
            claimed = await harness.claim(10)
        assert len(cost.statements) == 1
        async with harness.measure(store) as cost:
            moves = [harness.decide(t, Completed() if n % 2 else failing()) for n, t in enumerate(claimed)]
            await store.cycle(Commit(transitions=moves), harness.want(10))
        assert len(cost.statements) == 1
        for verb in (lambda: harness.renew(claimed[0]), harness.tick, lambda: store.expired(5), store.counts):
            async with harness.measure(store) as cost:
                await verb()
            assert len(cost.statements) == 1, cost.statements

    async def test_concurrent_producers_share_statements(self, harness: PostgresHarness) -> None:
        await harness.enqueue_many(2)  # the driver asks for types once per connection
        async with harness.measure(harness.store) as cost:
            await asyncio.gather(
                *(harness.store.apply(Commit(enqueues=[harness.new()])) for _ in range(100)),
            )
        assert len(cost.statements) <= 3
        assert await harness.count(State.QUEUED) == 102


class TestEdges:
    async def test_what_a_handler_raises_in_a_transaction_stays_its_own(self, harness: PostgresHarness) -> None:
        await harness.sql("create table shot (n integer primary key)")
        claimed = await harness.running()
        for error, statement in (
            (asyncpg.UniqueViolationError, "insert into shot values (1), (1)"),
            (asyncpg.DataError, "select 1/0"),
            (asyncpg.UndefinedTableError, "select * from nowhere"),
        ):
            with pytest.raises(error):
                async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())) as connection:
                    await connection.execute(statement)
        with pytest.raises(ConnectionResetError):
            async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())):
                raise ConnectionResetError("of some other service")
        assert await harness.settle(claimed, Completed())

    @pytest.mark.parametrize("kind, queue", [("bad name", "q"), ("A", "bad/queue"), ("", "q")])
    async def test_names_are_checked_by_the_database_too(self, harness: PostgresHarness, kind: str, queue: str) -> None:
        with pytest.raises(InvalidInput, match="not a valid name"):
            await harness.enqueue(kind, queue=queue)
        assert await harness.totals() == {}

    async def test_recount_repairs_a_wrong_number(self, harness: PostgresHarness) -> None:
        await harness.limit("K", concurrency=2)
        await harness.enqueue_many(3, "K")
        await harness.claim(1)
        await harness.sql("update redrive.kind set running = 2")
        assert await harness.claim(3) == []
        assert await harness.store.upkeep("recount") == 1
        assert (await limit_of(harness, "K")).running == 1
        assert len(await harness.claim(3)) == 1

    async def test_recount_waits_for_nobody_when_the_numbers_are_right(self, harness: PostgresHarness) -> None:
        await harness.limit("K", concurrency=2)
        await harness.enqueue_many(3, "K")
        await harness.claim(1)
        other = await asyncpg.connect(harness.url)
        async with other.transaction():
            await other.execute("select 1 from redrive.kind for update")
            async with asyncio.timeout(30):
                assert await harness.store.upkeep("recount") == 0
        await other.close()

    async def test_two_connections_never_deadlock_over_the_same_tasks(self, harness: PostgresHarness) -> None:
        """Settlements, recovery, operators and claims of the same rows, in opposite orders."""
        other = await harness.another()
        await harness.limit("K", concurrency=50)
        for _ in range(5):
            await harness.enqueue_many(20, "K", max_attempts=50)
            claimed = await harness.claim(20)
            await harness.advance(LEASE + 1)
            expired = await harness.look_for_expired(other)
            await asyncio.gather(
                harness.store.cycle(
                    Commit(transitions=[harness.decide(t, failing()) for t in claimed]), harness.want(20)
                ),
                other.apply(Commit(transitions=expired[::-1])),
                other.cycle(
                    Commit(transitions=[harness.decide(t, Completed()) for t in claimed[::-1]]),
                    harness.want(5, worker="w2"),
                ),
            )
            await check(harness)


async def check(harness: Harness) -> None:
    await harness.check_totals()


async def test_a_pool_at_rest_comes_down_to_one_connection(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "STEP_BY_CONNECT_TIME", 0)
    pool = Pool(postgres_url)
    together = asyncio.Barrier(3)

    async def at_once(connection: Connection) -> None:
        await together.wait()

    await asyncio.gather(*(pool.run(at_once) for _ in range(3)))
    assert len(pool._idle.connections) == 3
    pids = {connection.get_server_pid() for connection in pool._idle.connections}
    await pool.run(lambda connection: connection.fetchval("select 1"))
    assert len(pool._idle.connections) == 3, "they may be needed again in a moment"
    monkeypatch.setattr(pool_module, "UNUSED_AFTER_S", 0.0)
    for _ in range(4):
        await pool.run(lambda connection: connection.fetchval("select 1"))
    assert len(pool._idle.connections) == 1
    await asyncio.gather(*pool._closing)
    assert pool._idle.connections[0].get_server_pid() in pids
    await pool.close()
