"""Claim: who gets what, in which order; heartbeats keep a lease, and carry progress."""

from __future__ import annotations

import asyncio

import pytest

from redrive.kernel.commit import Commit
from redrive.kernel.outcome import Completed, Released, Snooze
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import Harness, failing


class TestClaim:
    async def test_nothing_waits(self, harness: Harness) -> None:
        assert await harness.claim(10) == []

    async def test_a_claim_is_a_lease(self, harness: Harness) -> None:
        task_id = await harness.enqueue()
        claimed = await harness.claim_one(worker="w7", lease=60.0)
        task = await harness.task(task_id)
        assert (task.state, task.lease_token, task.worker_id) == (State.RUNNING, claimed.token, "w7")
        assert (task.attempt_count, claimed.attempt) == (1, 1)
        assert task.lease_expires_at is not None and task.last_attempt_at is not None
        assert 59 <= (task.lease_expires_at - task.last_attempt_at).total_seconds() <= 61

    async def test_a_running_task_is_not_claimed_again(self, harness: Harness) -> None:
        await harness.running()
        assert await harness.claim(5) == []
        assert await harness.claim(5, store=await harness.another()) == []

    async def test_first_in_first_out(self, harness: Harness) -> None:
        ids = [await harness.enqueue() for _ in range(5)] + await harness.enqueue_many(5)
        got = await harness.claim(3) + await harness.claim(7, store=await harness.another())
        assert [task.id for task in got] == ids

    async def test_what_comes_back_joins_the_tail(self, harness: Harness) -> None:
        first, second, third = await harness.enqueue_many(3)
        await harness.settle(await harness.claim_one(), Released())
        await harness.settle(await harness.claim_one(), Snooze(0))
        assert [task.id for task in await harness.claim(5)] == [third, first, second]

    async def test_lower_priority_numbers_run_first(self, harness: Harness) -> None:
        made = {p: await harness.enqueue(priority=p) for p in (5, -3, 0, 32767, -32768, 1)}
        assert [task.id for task in await harness.claim(10)] == [made[p] for p in sorted(made)]

    async def test_an_urgent_task_overtakes_what_was_seen_before(self, harness: Harness) -> None:
        """Also for a worker that remembers where it stopped reading."""
        ids = await harness.enqueue_many(6, priority=5)
        assert [task.id for task in await harness.claim(2)] == ids[:2]
        urgent = await harness.enqueue(priority=1)
        middle = await harness.enqueue(priority=3)
        assert [task.id for task in await harness.claim(4)] == [urgent, middle, ids[2], ids[3]]
        late = await harness.enqueue(priority=1)
        assert [task.id for task in await harness.claim(4)] == [late, ids[4], ids[5]]

    async def test_queues_are_drained_in_the_order_given(self, harness: Harness) -> None:
        low = await harness.enqueue_many(3, queue="low", priority=-100)
        high = await harness.enqueue_many(3, queue="high")
        await harness.enqueue(queue="other")
        got = await harness.claim(4, queues=("high", "low"))
        assert [task.id for task in got] == [*high, low[0]]
        assert [task.queue for task in got] == ["high"] * 3 + ["low"]
        more = await harness.enqueue(queue="high")
        assert [task.id for task in await harness.claim(9, queues=("high", "low"))] == [more, *low[1:]]

    async def test_queue_order_holds_for_kinds_with_a_lane_of_their_own(self, harness: Harness) -> None:
        await harness.limit("LANE")
        low = await harness.enqueue("B", queue="low")
        high = [
            await harness.enqueue(kind, queue="high", priority=p) for kind, p in (("LANE", 2), ("B", 1), ("LANE", 0))
        ]
        got = await harness.claim(9, queues=("high", "low"))
        assert [task.id for task in got] == [high[2], high[1], high[0], low]

    @pytest.mark.parametrize("at_once", [1, 4])
    async def test_rows_on_their_way_into_a_lane_let_nobody_overtake(self, harness: Harness, at_once: int) -> None:
        """A limit that came late: thirty rows are set aside before the queue's next task, which is still the next."""
        await harness.enqueue_many(30, "LATE", queue="high")
        high = await harness.enqueue_many(3, "A", queue="high")
        low = await harness.enqueue_many(5, "A", queue="low")
        await harness.limit("LATE", concurrency=1)
        got = [task for _ in range(9) for task in await harness.claim(at_once, queues=("high", "low"))]
        assert [task.kind for task in got].count("LATE") == 1
        assert [task.id for task in got if task.kind == "A"] == [*high, *low]

    async def test_a_worse_priority_in_a_lane_waits_for_what_is_behind_rows_set_aside(self, harness: Harness) -> None:
        await harness.limit("LANE")
        worse = await harness.enqueue("LANE", priority=5)
        late = await harness.enqueue_many(10, "LATE")
        first = await harness.enqueue("A")
        await harness.limit("LATE", concurrency=1)
        got = [task.id for _ in range(3) for task in await harness.claim(1)]
        assert got == [late[0], first, worse]

    async def test_other_queues_are_left_alone(self, harness: Harness) -> None:
        await harness.enqueue(queue="mail")
        assert await harness.claim(5, queues=("default",)) == []
        assert len(await harness.claim(5, queues=("mail",))) == 1

    async def test_settle_and_claim_in_one_call(self, harness: Harness) -> None:
        await harness.enqueue_many(5)
        first = await harness.claim(3)
        cycle = await harness.settle_many([(task, Completed()) for task in first], harness.want(3))
        assert len(cycle.claimed) == 2 and cycle.lost == set()
        assert await harness.count(State.COMPLETED) == 3
        assert await harness.count(State.RUNNING) == 2

    async def test_a_released_task_can_be_claimed_in_the_same_call(self, harness: Harness) -> None:
        claimed = await harness.running()
        cycle = await harness.settle_many([(claimed, Released())], harness.want(1))
        assert [task.id for task in cycle.claimed] == [claimed.id]
        assert cycle.claimed[0].token != claimed.token

    async def test_two_stores_claim_each_task_once(self, harness: Harness) -> None:
        other = await harness.another()
        ids = await harness.enqueue_many(200)
        got: list[Claimed] = []

        async def drain(worker: str, store: Store) -> None:
            while claimed := await harness.claim(7, worker=worker, store=store):
                got.extend(claimed)

        await asyncio.gather(
            drain("w1", harness.store), drain("w2", other), drain("w3", harness.store), drain("w4", other)
        )
        # A claim may come back short while the rest is locked by another; nobody is left out in the end.
        while claimed := await harness.claim(50):
            got.extend(claimed)
        assert sorted(task.id for task in got) == sorted(ids)
        await harness.check_totals()

    async def test_one_worker_is_not_blocked_by_another_claim(self, harness: Harness) -> None:
        """Tasks of several queues and priorities, claimed and settled at once, all end."""
        other = await harness.another()
        await harness.enqueue_many(40, queue="a")
        await harness.enqueue_many(40, queue="b", priority=1)

        async def work(worker: str, store: Store, queues: tuple[str, ...]) -> int:
            done, claimed = 0, await harness.claim(5, worker=worker, queues=queues, store=store)
            while claimed:
                moves = [harness.decide(task, Completed(), worker) for task in claimed]
                cycle = await store.cycle(Commit(transitions=moves), harness.want(5, worker=worker, queues=queues))
                assert not cycle.lost
                done, claimed = done + len(moves), cycle.claimed
            return done

        await asyncio.gather(work("w1", harness.store, ("a", "b")), work("w2", other, ("b", "a")))
        await work("w3", harness.store, ("a", "b"))
        assert await harness.totals() == {("a", "A", State.COMPLETED): 40, ("b", "A", State.COMPLETED): 40}

    async def test_a_late_commit_is_not_overlooked(self, harness: Harness) -> None:
        """A worker that has read past a place looks there again."""
        kept = await harness.enqueue_many(3)
        assert len(await harness.claim(3)) == 3
        await harness.store.apply(Commit(enqueues=[harness.new(delay=5.0)]))
        await harness.advance(6)
        assert (await harness.tick()).promoted == 1
        (late,) = await harness.claim(3)
        assert late.id not in kept


class TestHandles:
    """Kinds nobody in this process handles are set aside for those who do."""

    async def test_unhandled_kinds_do_not_block(self, harness: Harness) -> None:
        unknown = await harness.enqueue_many(5, "UNKNOWN")
        known = await harness.enqueue_many(2, "A")
        got = await harness.claim(5, handles=("A", "C"))
        assert [task.id for task in got] == known
        assert [await harness.state(i) for i in unknown] == [State.QUEUED] * 5
        await harness.check_totals()

    async def test_set_aside_tasks_keep_their_order_for_their_handler(self, harness: Harness) -> None:
        ids = [await harness.enqueue(kind) for kind in ("B", "A", "B", "A", "B")]
        await harness.claim(5, handles=("A",))
        later = await harness.enqueue("B")
        got = await harness.claim(9, handles=("B",), store=await harness.another())
        assert [task.id for task in got] == [ids[0], ids[2], ids[4], later]

    async def test_a_worker_for_everything_finds_them_too(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(3, "B")
        assert await harness.claim(5, handles=("A",)) == []
        assert [task.id for task in await harness.claim(5)] == ids

    async def test_many_unhandled_in_front_hide_nothing_for_long(self, harness: Harness) -> None:
        await harness.stock(3_000, State.QUEUED, kind="UNKNOWN")
        wanted = await harness.enqueue("A")
        got = [task.id for _ in range(3) for task in await harness.claim(1, handles=("A",))]
        assert got == [wanted]
        assert len(await harness.claim(5, handles=("UNKNOWN",))) == 5

    async def test_bulk_top_up_takes_one_kind_only(self, harness: Harness) -> None:
        await harness.limit("BULK")
        for kind in ("BULK", "A", "BULK", "A", "BULK"):
            await harness.enqueue(kind)
        assert [task.kind for task in await harness.claim(2, only="BULK")] == ["BULK", "BULK"]
        assert [task.kind for task in await harness.claim(9, only="BULK")] == ["BULK"]
        assert await harness.claim(9, only="BULK") == []
        assert [task.kind for task in await harness.claim(9)] == ["A", "A"]

    @pytest.mark.parametrize("held", [True, False])
    async def test_bulk_top_up_respects_limits(self, harness: Harness, held: bool) -> None:
        await harness.limit("BULK", concurrency=2)
        await harness.enqueue_many(5, "BULK")
        (first,) = await harness.claim(1)
        if not held:
            await harness.settle(first, failing())
        assert len(await harness.claim(5, only="BULK")) == (1 if held else 2)


class TestRenew:
    async def test_a_renewed_lease_is_not_recovered(self, harness: Harness) -> None:
        await harness.enqueue()
        claimed = await harness.claim_one(lease=10.0)
        for _ in range(3):
            await harness.advance(8)
            assert await harness.renew(claimed, 10.0)
            assert await harness.recover() == set()
        await harness.advance(11)
        assert await harness.recover() == {claimed.id}

    async def test_a_late_heartbeat_keeps_the_lease_while_nobody_took_it(self, harness: Harness) -> None:
        await harness.enqueue()
        claimed = await harness.claim_one(lease=10.0)
        await harness.advance(60)
        assert await harness.renew(claimed, 10.0)
        assert await harness.recover() == set()
        assert await harness.settle(claimed, Completed())

    async def test_renewing_many_answers_only_what_is_lost(self, harness: Harness) -> None:
        await harness.enqueue_many(5)
        claimed = await harness.claim(5)
        await harness.settle(claimed[1], Completed())
        await harness.ask_to_cancel(claimed[2].id)
        leases = [(task.id, task.token) for task in claimed]
        leases[3] = (claimed[3].id, claimed[0].id)
        progress = {task.id: f'{{"n":{n}}}' for n, task in enumerate(claimed)}
        assert await harness.store.renew(leases, 60.0, progress) == {claimed[1].id, claimed[3].id}
        assert [(await harness.task(task.id)).progress for task in claimed] == [
            {"n": 0},
            None,
            {"n": 2},
            None,
            {"n": 4},
        ]

    async def test_progress_without_news_stays(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.renew(claimed, progress={claimed.id: '{"done":3,"of":7}'})
        await harness.renew(claimed)
        assert (await harness.task(claimed.id)).progress == {"done": 3, "of": 7}

    async def test_nothing_to_renew(self, harness: Harness) -> None:
        assert await harness.store.renew([], 60.0, {}) == set()

    async def test_renewing_changes_no_total(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.renew(claimed)
        assert await harness.totals() == {("default", "A", State.RUNNING): 1}
        await harness.check_totals()
