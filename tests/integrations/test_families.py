"""What holds for every kind of connection."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive.errors import IdempotencyConflict
from tests.integrations.callers import Caller, settled
from tests.integrations.conftest import ALL_CALLERS, Outside

AWKWARD = """quotes ' " \\ %s %(x)s $1 :x ? {} € 🙂"""


@ALL_CALLERS
def test_commit_makes_business_and_task_visible_together(caller: Caller, outside: Outside) -> None:
    async def scenario(caller: Caller) -> str:
        await caller.write("order 1")
        task = await caller.enqueue("SHIP", {"order": 1, "note": AWKWARD})
        assert (outside.tasks, outside.business, outside.totals) == ([], [], (0, 0))
        await settled(caller.commit())
        return str(task.id)

    task_id = caller.play(scenario)
    assert (outside.tasks, outside.business, outside.totals) == ([task_id], ["order 1"], (1, 0))
    assert outside.work() == [{"order": 1, "note": AWKWARD}]


def test_the_task_alone_is_committed_too(caller: Caller, outside: Outside) -> None:
    """Enqueueing may be the first and only statement of a transaction."""

    async def scenario(caller: Caller) -> None:
        await caller.enqueue("OTHER")
        assert outside.tasks == []
        await settled(caller.commit())

    caller.play(scenario)
    assert outside.totals == (1, 0)
    assert outside.work() == [None]


@ALL_CALLERS
def test_rollback_leaves_nothing(caller: Caller, outside: Outside) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.enqueue("SHIP", {"order": 1}, idempotency_key="k")
        await caller.write("order 1")
        await caller.enqueue("SHIP", {"order": 2}, delay=60)
        await settled(caller.rollback())

    caller.play(scenario)
    assert (outside.tasks, outside.business, outside.keys, outside.totals) == ([], [], 0, (0, 0))
    caller.play(scenario)
    assert outside.keys == 0


def test_closing_without_commit_leaves_nothing(caller: Caller, outside: Outside) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.enqueue("OTHER")

    caller.play(scenario)
    assert (outside.tasks, outside.totals) == ([], (0, 0))


def test_a_known_key_answers_the_same_task(caller: Caller, outside: Outside) -> None:
    async def scenario(caller: Caller) -> None:
        first = await caller.enqueue("SHIP", {"order": 1}, idempotency_key="k")
        inside = await caller.enqueue("SHIP", {"order": 1}, idempotency_key="k")
        await settled(caller.commit())
        await settled(caller.begin())
        after = await caller.enqueue("SHIP", {"order": 1}, idempotency_key="k")
        await settled(caller.commit())
        assert first.id == inside.id == after.id
        assert [task.deduplicated for task in (first, inside, after)] == [False, True, True]

    caller.play(scenario)
    assert (outside.keys, outside.totals) == (1, (1, 0))


def test_a_conflict_leaves_the_transaction_usable(caller: Caller, outside: Outside) -> None:
    async def scenario(caller: Caller) -> None:
        first = await caller.enqueue("SHIP", {"order": 1}, idempotency_key="k")
        with pytest.raises(IdempotencyConflict) as caught:
            await caller.enqueue("SHIP", {"order": 2}, idempotency_key="k")
        assert caught.value.task_id == first.id
        same = await caller.enqueue("SHIP", {"order": 1, "note": ""}, idempotency_key="k", delay=60, priority=3)
        assert (same.id, same.deduplicated) == (first.id, True), "what is left out is the handler's default"
        await caller.write("after the conflict")
        await settled(caller.commit())

    caller.play(scenario)
    assert (outside.business, outside.totals) == (["after the conflict"], (1, 0))


def test_many_at_once(caller: Caller, outside: Outside) -> None:
    when = datetime.now(UTC) + timedelta(hours=1)
    tasks = [
        ("SHIP", {"order": 1}),
        {"kind": "SHIP", "payload": {"order": 2}, "delay": 3600, "priority": 7, "timeout": 1.5},
        {"kind": "OTHER", "run_at": when, "group": "g", "scope": "s", "trace_id": "t"},
        {"kind": "SHIP", "payload": {"order": 3}, "idempotency_key": "k"},
        {"kind": "SHIP", "payload": {"order": 3}, "idempotency_key": "k"},
        *(("SHIP", {"order": n}) for n in range(10, 130)),
    ]

    async def scenario(caller: Caller) -> list[str]:
        made = await caller.enqueue_many(tasks)
        await settled(caller.commit())
        assert made[3].id == made[4].id
        return [str(task.id) for task in made]

    ids = caller.play(scenario)
    assert len(ids) == 125
    assert set(outside.tasks) == set(ids)
    assert outside.totals == (122, 2)
    row = outside.ask(f"select priority, timeout_ms from {outside.table('task')} where priority <> 0")
    assert [tuple(one) for one in row] == [(7, 1500)]
    assert outside.ask(
        f"select task_group, scope, trace_id from {outside.table('task')} where kind = 'OTHER' and payload is null"
    ) == [("g", "s", "t")]
    (due,) = outside.ask(f"select run_at from {outside.table('task')} where kind = 'OTHER'")[0]
    assert due == (round(when.timestamp() * 1_000_000) if outside.sqlite else when)


def test_many_transactions_on_one_connection(caller: Caller, outside: Outside) -> None:
    """Often enough for drivers that prepare statements after a while."""

    async def scenario(caller: Caller) -> None:
        for n in range(12):
            await caller.enqueue("SHIP", {"order": n}, idempotency_key=f"k{n}" if n % 3 else None)
            await settled(caller.rollback() if n % 4 == 3 else caller.commit())
            await settled(caller.begin())

    caller.play(scenario)
    assert outside.totals == (9, 0)
