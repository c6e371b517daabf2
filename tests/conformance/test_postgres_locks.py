"""Locks: what waits for what, what is passed by, and what a session leaves behind."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from redrive.ids import new_id
from redrive.kernel.commit import CloseJoin, Commit, Limit, Target
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.outcome import Completed, Released
from redrive.kernel.retention import Retention
from redrive.kernel.task import NewTask, State
from redrive.stores.postgres import apply
from redrive_kit.conformance.joins import LARGE, Group
from redrive_kit.conformance.wakes import ears, ready
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.test_postgres_races import session

pytestmark = pytest.mark.anyio


async def test_a_claim_looks_past_what_others_have_locked(harness: PostgresHarness) -> None:
    """Also with a held group around, when claims are decided row by row."""
    await harness.hold(Target.GROUP, "other")
    await harness.enqueue_many(60)
    async with session(harness) as other:
        await other.execute("select 1 from redrive.task order by position limit 40 for update")
        cycle = await harness.store.cycle(Commit(), harness.want(10))
        assert len(cycle.claimed) == 10
        harness.store.positions._next_sweep = 0.0  # what is behind the last claim is found by sweeping
        cycle = await harness.store.cycle(Commit(), harness.want(20))
        # Ten were left that nobody holds; of the others it is told that they are there.
        assert (len(cycle.claimed), cycle.more) == (10, True)
        harness.store.positions._next_sweep = 0.0
        cycle = await harness.store.cycle(Commit(), harness.want(20))
        assert (cycle.claimed, cycle.more) == ([], True)
    harness.store.positions._next_sweep = 0.0
    assert len(await harness.claim(99)) == 40
    await harness.check_totals()


async def test_rows_that_belong_into_a_lane_by_now_do_not_stop_the_open_lane(harness: PostgresHarness) -> None:
    """A kind that was limited after its tasks came stands in front of others, while its lane has nothing to give."""
    await harness.enqueue_many(30, "LATE")
    await harness.enqueue_many(30, "OPEN")
    await harness.enqueue_many(5, "LATE")
    await harness.limit("LATE", concurrency=2)
    claimed = [task for _ in range(3) for task in await harness.claim(20)]
    assert [task.kind for task in claimed].count("LATE") == 2
    assert [task.kind for task in claimed].count("OPEN") == 30
    await harness.settle_many([(task, Completed()) for task in claimed])
    assert [task.kind for task in await harness.claim(20)] == ["LATE", "LATE"]
    await harness.check_totals()


async def test_rows_that_others_hold_do_not_hide_what_is_behind_those_that_belong_into_a_lane(
    harness: PostgresHarness,
) -> None:
    """A locked row, then one of a kind that is limited by now and full, then one that may run."""
    first = await harness.enqueue("OPEN")
    await harness.enqueue("LATE")
    last = await harness.enqueue("OPEN")
    await harness.limit("LATE", concurrency=1)
    await harness.sql("update redrive.kind set running = 1 where kind = 'LATE'")
    async with session(harness) as other:
        await other.execute("select 1 from redrive.task where id = $1 for update", first)
        assert [task.id for task in await harness.claim(1)] == [last]


async def test_a_full_lane_leaves_the_open_one_alone(harness: PostgresHarness) -> None:
    """Its waiting tasks stay where they are, and what the others get comes in order."""
    await harness.limit("FULL", concurrency=1)
    await harness.enqueue_many(10, "FULL")
    assert len(await harness.claim(5)) == 1
    ids = await harness.enqueue_many(10, "OPEN")
    assert [task.id for task in await harness.claim(4)] == ids[:4]
    assert [task.id for task in await harness.claim(99)] == ids[4:]


async def test_a_new_limit_and_a_settle_of_both_kinds_do_not_deadlock(harness: PostgresHarness) -> None:
    await harness.limit("K", concurrency=5)
    await harness.enqueue_many(4, "K")
    done, back = await harness.claim(2)
    other = await harness.another()
    async with session(harness) as claim:
        await claim.execute("lock table redrive.move_lock in row share mode")
        limit = asyncio.create_task(other.apply(Commit(controls=[Limit("K", 7, None, "ann")])))
        await waiting_for_a_lock(harness, 1)
        moves = [harness.decide(done, Completed()), harness.decide(back, Released())]
        settle = asyncio.create_task(harness.store.cycle(Commit(transitions=moves), None))
        await waiting_for_a_lock(harness, 2)
    assert (await settle).lost == set()
    await limit
    [row] = (await harness.store.overview()).limits
    assert (row.concurrency, row.running) == (7, 0)


async def waiting_for_a_lock(harness: PostgresHarness, count: int) -> None:
    async with asyncio.timeout(60):
        while len(await harness.sql("select 1 from pg_locks where not granted")) < count:
            await asyncio.sleep(0.01)


async def test_a_group_with_a_locked_task_holds_up_no_other_and_comes_back_whole(harness: PostgresHarness) -> None:
    locked = await harness.enqueue(group="a")
    first = UUID(int=0)
    await harness.store.apply(Commit(enqueues=[NewTask(first, "A", "default", None, group="a", max_attempts=1)]))
    other = await harness.enqueue(group="b")
    for group in ("a", "b"):
        await harness.hold(Target.GROUP, group)
    assert await harness.claim(9) == []
    async with session(harness) as busy:
        await busy.execute("select 1 from redrive.task where id = $1 for update", locked)
        await harness.hold(Target.GROUP, "a", on=False)
        await harness.hold(Target.GROUP, "b", on=False)
        assert [await harness.state(i) for i in (locked, first, other)] == [State.PAUSED, State.QUEUED, State.QUEUED]
        await harness.tick()
    await harness.tick()
    assert await harness.state(locked) is State.QUEUED
    assert await harness.sql("select * from redrive.resuming") == []
    await harness.check_totals()


async def test_a_promotion_locks_no_more_than_it_promotes(harness: PostgresHarness) -> None:
    queues = [f"q{n}" for n in range(5)]
    for queue in queues:
        await harness.enqueue_many(10, queue=queue, delay=1)
    await harness.advance(2)
    async with session(harness) as busy:
        assert await busy.fetchval("select redrive.promote($1, null, 10)", queues) == 10
        free = await harness.sql("select 1 from redrive.task where state = 'delayed' for update skip locked")
        assert len(free) == 40


async def test_what_a_handler_sets_for_its_session_ends_with_its_transaction(harness: PostgresHarness) -> None:
    claimed = await harness.running()
    async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())) as transaction:
        await transaction.execute("set default_transaction_read_only = on")
        await transaction.execute("select set_config('search_path', 'pg_temp', false)")
    idle = harness.store.pool._idle_lent.connections
    assert {await connection.fetchval("show default_transaction_read_only") for connection in idle} == {"off"}
    await asyncio.gather(*(harness.enqueue() for _ in range(5)))
    assert len(await harness.claim(9)) == 5


@pytest.mark.parametrize(
    "payload", ["ready default 99999999999999999999999", "ready default -1", "ready", "due x y", ""]
)
async def test_whatever_else_is_notified_does_no_harm(harness: PostgresHarness, payload: str) -> None:
    heard = await ears(harness.store)
    await harness.sql(f"select pg_notify('redrive_' || md5('default'), '{payload}')")
    await harness.enqueue()
    await heard.hear(ready("default"))
    assert len(await harness.claim(1)) == 1


async def test_a_join_that_somebody_holds_holds_up_nobody_without_it(harness: PostgresHarness) -> None:
    """A handler's transaction may have it for long. Members end meanwhile, others are enqueued, totals are folded; what
    ended is counted as soon as it is let go."""
    held, free = Group(harness), Group(harness)
    (member,) = await held.begin(1)
    others = await free.begin(2)
    async with asyncio.timeout(60):
        async with session(harness) as other:
            await other.execute("select 1 from redrive.task_join where id = $1 for update", held.join.id)
            waits = asyncio.create_task(harness.enqueue("LATER", join=held.join.id))
            await asyncio.sleep(0.1)  # it waits by now
            await asyncio.gather(*(harness.enqueue("PLAIN", queue="other") for _ in range(5)))
            cycle = await harness.settle_many([(task, Completed()) for task in (member, *others)])
            assert cycle.lost == set() and await free.said() == ["ENDED", "SUCCEEDED"]
            assert await harness.state(member.id) is State.COMPLETED
            (seen,) = await harness.store.joins([held.join.id])
            assert (seen.completed, seen.ended_at) == (0, None) and not waits.done()
        await waits
    assert await held.counts() == (2, 1, 0, 0) and await held.said() == []
    await harness.settle(await harness.claim_one(), Completed())
    assert await held.counts() == (2, 2, 0, 0) and await held.said() == ["ENDED", "SUCCEEDED"]


async def test_joins_are_not_removed_before_their_last_arrivals_are_added_up(harness: PostgresHarness) -> None:
    group = Group(harness)
    members = await group.begin(LARGE)
    await harness.settle_many([(task, Completed()) for task in members])
    await harness.advance(40 * 86400.0)
    await harness.store.upkeep("prune", Retention(history_days=10.0))
    assert await group.said() == ["ENDED", "SUCCEEDED"]


async def test_arrivals_at_a_join_that_is_gone_are_forgotten(harness: PostgresHarness) -> None:
    await harness.sql(f"insert into redrive.join_delta values ('{UUID(int=7)}', 1, 0, 0)")
    await harness.store.upkeep("fold")
    assert await harness.sql("select count(*) from redrive.join_delta") == [(0,)]


async def test_a_heartbeat_waits_for_no_row_that_somebody_else_is_at(harness: PostgresHarness) -> None:
    """A settlement holds its rows while it waits for a join or an account; other leases must not run out meanwhile."""
    await harness.enqueue_many(2)
    held, free = await harness.claim(2, lease=60.0)
    before = {task.id: (await harness.task(task.id)).lease_expires_at for task in (held, free)}
    async with session(harness) as other:
        await other.execute("select 1 from redrive.task where id = $1 for update", held.id)
        async with asyncio.timeout(60):
            lost = await harness.store.renew([(task.id, task.token) for task in (held, free)], 120.0, {})
        assert lost == set()
        after = {task.id: (await harness.task(task.id)).lease_expires_at for task in (held, free)}
        assert after[held.id] == before[held.id] and (after[free.id] or 0) > (before[free.id] or 0)  # type: ignore[operator]
    assert await harness.renew(held, 120.0)
    assert (await harness.task(held.id)).lease_expires_at != before[held.id]


async def test_recovery_passes_by_what_an_open_transaction_holds(harness: PostgresHarness) -> None:
    await harness.enqueue_many(6, max_attempts=1)
    held, *_ = claimed = await harness.claim(6)
    await harness.advance(61)
    async with session(harness) as other:
        await other.execute("select 1 from redrive.task where id = $1 for update", held.id)
        applied = await harness.store.apply(Commit(transitions=await harness.look_for_expired()))
        assert applied.refused.keys() == applied.lost == {held.id}
    assert {(await harness.task(task.id)).state for task in claimed[1:]} == {State.FAILED}
    assert not (await harness.store.apply(Commit(transitions=await harness.look_for_expired()))).lost


async def test_joins_are_closed_in_one_order(harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "MOST_DEADLOCKS", 0)
    joins = [NewJoin(new_id(), open=True) for _ in range(4)]
    await harness.store.apply(Commit(joins=joins))
    other = await harness.another()

    async def close(n: int) -> None:
        closes = [CloseJoin(join.id) for join in (joins if n % 2 else joins[::-1])]
        await (harness.store if n % 3 else other).apply(Commit(controls=closes))

    await asyncio.gather(*(close(n) for n in range(20)))
    assert all(join.ended_at is not None for join in await harness.store.joins([join.id for join in joins]))


async def test_the_victim_of_a_deadlock_tries_again(harness: PostgresHarness) -> None:
    """Somebody's own transaction may take accounts in another order."""
    seed = Posting("seed", (("system:world", -2), ("alice", 1), ("bob", 1)))
    await harness.store.apply(Commit(postings=[seed]))
    async with session(harness) as other:
        await other.execute("set local deadlock_timeout = '1min'")  # so that the other one is the victim
        await other.execute("select 1 from redrive.account where name = 'bob' for update")
        move = Commit(postings=[Posting("p", (("alice", -1), ("bob", 1)))])
        asked = asyncio.create_task(harness.store.apply(move))
        here = "datname = current_database() and wait_event_type = 'Lock'"
        while await harness.sql(f"select count(*) from pg_stat_activity where {here}") == [(0,)]:
            await asyncio.sleep(0.01)
        await other.execute("select 1 from redrive.account where name = 'alice' for update")
        assert not asked.done()
    assert (await asked).repeated == set()
    assert await harness.store.sql.balance("bob") == 2
