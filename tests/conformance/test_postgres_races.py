"""Races that only a server with many sessions can have. Each is forced step by step, with open transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.commit import Commit, KnownNames, Limit
from redrive.kernel.task import NewTask, State
from tests.conformance.harness_postgres import PostgresHarness

pytestmark = pytest.mark.anyio
ENQUEUE = "select * from redrive.enqueue($1, $2, $3, null, null, $4, null, $5, null, null, null, null, $6, $7)"
CLAIM = """
select * from redrive.claim($1, $2, 60, 5, array['default'], null, null, $3, '{}', '{}', '{}', '{}', '{}')
"""


@asynccontextmanager
async def session(harness: PostgresHarness) -> AsyncIterator[Any]:
    """A connection with an open transaction, committed at the end."""
    connection = await asyncpg.connect(harness.url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


async def waits(harness: PostgresHarness, connection: Any) -> None:
    """Until that session waits for a lock."""
    pid = connection.get_server_pid()
    async with asyncio.timeout(60):
        while not await harness.sql(f"select 1 from pg_locks where pid = {pid} and not granted"):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("attempts", "run_at"), [(0, None), (1, "200000-01-01"), (1, "infinity"), (1, "1900-01-01")])
async def test_a_producer_cannot_enqueue_what_workers_choke_on(
    harness: PostgresHarness, attempts: int, run_at: str | None
) -> None:
    connection = await asyncpg.connect(harness.url)
    at = "null" if run_at is None else f"array[timestamptz '{run_at}']"
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await connection.execute(
            f"select redrive.enqueue(array[gen_random_uuid()], array['A'], array['default'], null, null,"
            f" array[{attempts}], null, {at}, null, null, null, null, null)"
        )
    await connection.close()
    assert await harness.tally() == {}


async def test_two_cycles_that_free_and_claim_each_others_kinds_do_not_deadlock(harness: PostgresHarness) -> None:
    for kind in "AB":
        await harness.limit(kind, concurrency=2)
        await harness.enqueue_many(4, kind=kind)
    held: dict[str, tuple[UUID, UUID]] = {}
    for kind in "AB":
        [task] = await harness.claim(1, only=kind)
        held[kind] = (task.id, task.token)
    complete = "select redrive.complete(array[$1::uuid], array[$2::uuid], array[1.0::real], null)"
    async with session(harness) as first, session(harness) as second:
        await first.fetchval(complete, *held["B"])
        await second.fetchval(complete, *held["A"])
        # Each holds a kind row that the other one wants. Neither waits; both are told that there may be more.
        for worker, connection in (("w1", first), ("w2", second)):
            rows = await connection.fetch(CLAIM, worker, uuid4(), False)
            assert rows[-1]["id"] is None
            assert len(rows) > 1


async def test_a_repeated_enqueue_waits_for_the_first_try_and_adds_nothing(harness: PostgresHarness) -> None:
    task_id = new_id()
    args = ([task_id], ["A"], ["default"], [3], None, None)
    async with session(harness) as first:
        await first.fetch(ENQUEUE, *args, False)
        again = asyncio.create_task(
            harness.store.apply(Commit(enqueues=[NewTask(task_id, "A", "default", None, max_attempts=3)]), again=True)
        )
        async with asyncio.timeout(60):
            while not await harness.sql("select 1 from pg_locks where not granted"):
                await asyncio.sleep(0.01)
    assert [answer.created for answer in (await again).enqueued] == [True]
    assert sum((await harness.tally()).values()) == 1
    await harness.store.upkeep("fold")
    assert sum(count.n for count in await harness.store.counts()) == 1


async def test_a_starting_worker_does_not_overwrite_a_limit_an_operator_is_setting(harness: PostgresHarness) -> None:
    async with session(harness) as operator:
        await operator.fetchval("select redrive.set_limit('A', 7, null, 'ann')")
        starting = asyncio.create_task(harness.store.apply(Commit(controls=[Limit("A", 3)])))
        async with asyncio.timeout(60):
            while not await harness.sql("select 1 from pg_locks where not granted"):
                await asyncio.sleep(0.01)
    await starting
    [limit] = (await harness.store.overview()).limits
    assert (limit.concurrency, limit.actor) == (7, "ann")


async def test_rows_of_a_held_group_do_not_block_a_narrow_lane(harness: PostgresHarness) -> None:
    await harness.limit("A", concurrency=1)
    await harness.enqueue_many(300, kind="A", group="held")
    [wanted] = await harness.enqueue_many(1, kind="A")
    await harness.sql("insert into redrive.hold values ('group', 'held', 'ann', null, now())")
    claimed = await harness.claim(1) or await harness.claim(1)
    assert [task.id for task in claimed] == [getattr(wanted, "id", wanted)]


async def test_an_overdue_row_that_is_locked_does_not_make_the_beat_spin(harness: PostgresHarness) -> None:
    await harness.enqueue_many(1, delay=0.001)
    await harness.advance(10)
    async with session(harness) as other:
        await other.execute("select 1 from redrive.task for update")
        tick = await harness.tick()
        assert (tick.promoted, tick.next_due) == (0, None)
    assert (await harness.tick()).promoted == 1


async def test_keys_tell_kind_and_payload_apart(harness: PostgresHarness) -> None:
    first = NewTask(new_id(), "JOB", "default", "12", idempotency_key="k")
    second = NewTask(new_id(), "JOB1", "default", "2", idempotency_key="k")
    await harness.store.apply(Commit(enqueues=[first]))
    [answer] = (await harness.store.apply(Commit(enqueues=[second]))).enqueued
    assert (answer.id, answer.conflict) == (first.id, True)


async def test_two_producers_at_the_last_name(harness: PostgresHarness) -> None:
    """Neither waits for the other's transaction, one of them gets it, and it is given back when that one rolls back."""
    await harness.store.apply(Commit(controls=[KnownNames(most=1)]))
    new = "select redrive.enqueue($1, queue => $1)"
    async with asyncio.timeout(60):
        async with session(harness) as first, session(harness) as second:
            await first.fetchval(new, "A")
            with pytest.raises(asyncpg.InvalidParameterValueError, match="too many names"):
                await second.fetchval(new, "B")
            await harness.store.upkeep("names")  # counts nothing: whether there will be one is not known yet
            async with session(harness) as third:
                with pytest.raises(asyncpg.InvalidParameterValueError, match="too many names"):
                    await third.fetchval(new, "B")
            await first.execute("rollback; begin")
        await harness.store.upkeep("names")
        async with session(harness) as first:
            await first.fetchval(new, "B")
            await first.fetchval(new, "B")  # is counted once
        async with session(harness) as second:
            await second.fetchval(new, "B")


async def test_errors_do_not_quote_rows(harness: PostgresHarness) -> None:
    secret = NewTask(new_id(), "A", "default", '{"password": "hunter2"}')
    await harness.store.apply(Commit(enqueues=[secret]))
    with pytest.raises(Exception) as raised:
        await harness.store.apply(Commit(enqueues=[secret]))
    assert "hunter2" not in str(raised.value)
    assert not isinstance(raised.value, InvalidInput)


@pytest.mark.parametrize("ends", ["commits", "rolls back"])
async def test_a_key_that_an_open_transaction_holds_keeps_only_its_own_callers_waiting(
    harness: PostgresHarness, ends: str
) -> None:
    """Neither who has no key, nor who has another one, alone or in the same statement; also of large lists."""

    def call(*keys: str | None) -> asyncio.Task[Any]:
        tasks = [harness.new(idempotency_key=key) for key in keys]
        return asyncio.create_task(harness.store.apply(Commit(enqueues=tasks)))

    holder = await asyncpg.connect(harness.url)
    transaction = holder.transaction()
    await transaction.start()
    theirs = await holder.fetchval(
        "select redrive.enqueue('A', '{\"x\":1}', idempotency_key => 'held', max_attempts => 3)"
    )
    held = [call("held") for _ in range(4)]
    held += [call("held", *(f"large {n}" for n in range(150))) for _ in range(3)]
    async with asyncio.timeout(30):  # before the holder ends: it waits for them
        for turn in range(3):
            innocent = [call(None), call(f"free {turn}"), call(*(f"{turn} list {n}" for n in range(120)))]
            together = [call(f"shared {turn} {n}") for n in range(5)] + [call("held")]
            for done in await asyncio.gather(*innocent, *together[:-1]):
                assert all(answer.created for answer in done.enqueued)
            held.append(together[-1])
    assert not any(caller.done() for caller in held)
    await (transaction.commit() if ends == "commits" else transaction.rollback())
    await holder.close()
    answers = [(await caller).enqueued[0] for caller in held]
    assert len({answer.id for answer in answers}) == 1
    assert sum(answer.created for answer in answers) == (ends == "rolls back")
    assert (answers[0].id == theirs) == (ends == "commits")
    await harness.check_totals()


async def test_who_gives_up_waiting_for_a_held_key_leaves_nothing_behind(harness: PostgresHarness) -> None:
    async with session(harness) as holder:
        await holder.fetchval("select redrive.enqueue('A', '{\"x\":1}', idempotency_key => 'held')")
        caller = asyncio.create_task(harness.enqueue(idempotency_key="held"))
        await asyncio.sleep(0.5)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await harness.enqueue(idempotency_key="other")
    assert await harness.count(State.QUEUED) == 2
