"""Joins: every member counts once, and the last one brings what follows, once."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.commit import CloseJoin, Commit
from redrive.kernel.joins import Join, NewJoin
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Cancel, Completed, Outcome, Released, Retry, Snooze
from redrive.kernel.retention import Retention
from redrive.kernel.task import Claimed, NewTask, State
from redrive.testing.conformance.harness import LEASE, RETRY_AT_ONCE, TERMINAL, Harness

LARGE = 1001  # members: from here on arrivals are added up now and then


def callback(kind: str) -> NewTask:
    return NewTask(new_id(), kind, "after", '{"x":1}', scope="s")


class Group:
    """A join with its callbacks, and members that were claimed."""

    def __init__(self, harness: Harness, *, is_open: bool = False) -> None:
        self.harness = harness
        self.join = NewJoin(new_id(), callback("ENDED"), callback("SUCCEEDED"), is_open)

    async def begin(self, members: int, *, max_attempts: int = 3) -> list[Claimed]:
        tasks = [self.harness.new(join=self.join.id, max_attempts=max_attempts) for _ in range(members)]
        await self.harness.store.apply(Commit(joins=[self.join], enqueues=tasks))
        return await self.harness.claim(members) if members else []

    async def add(self, members: int = 1) -> None:
        await self.harness.enqueue_many(members, join=self.join.id)

    async def now(self) -> Join:
        await self.harness.store.upkeep("fold")
        (found,) = await self.harness.store.joins([self.join.id])
        return found

    async def counts(self) -> tuple[int, int, int, int]:
        found = await self.now()
        return found.total, found.completed, found.failed, found.cancelled

    async def said(self) -> list[str]:
        """What was enqueued at its end so far."""
        await self.now()
        found = []
        for task in (self.join.on_complete, self.join.on_success):
            assert task is not None
            if await self.harness.store.get(task.id) is not None:
                found.append(task.kind)
        return found


class TestJoins:
    async def test_the_last_member_brings_what_follows(self, harness: Harness) -> None:
        group = Group(harness)
        first, second, third = await group.begin(3)
        assert first.join == group.join.id
        for claimed in (first, second):
            await harness.settle(claimed, Completed())
        assert await group.said() == [] and await group.counts() == (3, 2, 0, 0)
        await harness.settle(third, Completed())
        assert await group.said() == ["ENDED", "SUCCEEDED"]
        found = await group.now()
        assert found.pending == 0 and found.ended_at is not None and found.succeeded_at is not None
        claimed_after = await harness.claim(5, queues=("after",))
        assert [(task.kind, task.scope, task.payload) for task in claimed_after] == [
            ("ENDED", "s", claimed_after[0].payload),
            ("SUCCEEDED", "s", claimed_after[0].payload),
        ]
        await harness.check_totals()

    async def test_all_in_one_cycle(self, harness: Harness) -> None:
        group, other = Group(harness), Group(harness)
        members = await group.begin(4) + await other.begin(2)
        outcomes: list[Outcome] = [Completed(), TERMINAL, Cancel("enough"), Completed(), Completed(), Completed()]
        cycle = await harness.settle_many(list(zip(members, outcomes, strict=True)))
        assert cycle.lost == set()
        assert await group.counts() == (4, 2, 1, 1) and await group.said() == ["ENDED"]
        assert await other.counts() == (2, 2, 0, 0) and await other.said() == ["ENDED", "SUCCEEDED"]

    @pytest.mark.parametrize("outcome", [RETRY_AT_ONCE, Retry("later", after=60), Snooze(60), Released()])
    async def test_members_that_come_back_have_not_arrived(self, harness: Harness, outcome: object) -> None:
        group = Group(harness)
        (claimed,) = await group.begin(1)
        await harness.settle(claimed, outcome)  # type: ignore[arg-type]
        assert await group.counts() == (1, 0, 0, 0) and await group.said() == []

    async def test_a_requested_cancel_wins_over_a_retry(self, harness: Harness) -> None:
        group = Group(harness)
        (claimed,) = await group.begin(1)
        await harness.ask_to_cancel(claimed.id)
        await harness.settle(claimed, RETRY_AT_ONCE)
        assert await harness.state(claimed.id) is State.CANCELLED
        assert await group.counts() == (1, 0, 0, 1) and await group.said() == ["ENDED"]

    async def test_a_lost_settlement_does_not_arrive(self, harness: Harness) -> None:
        group = Group(harness)
        (claimed,) = await group.begin(1)
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert not await harness.settle(claimed, Completed())
        assert await group.counts() == (1, 0, 0, 0)

    async def test_a_settlement_that_is_sent_again_arrives_once(self, harness: Harness) -> None:
        group = Group(harness)
        first, _ = await group.begin(2)
        for _ in range(3):
            assert await harness.settle(first, Completed(), again=True)
        assert await group.counts() == (2, 1, 0, 0) and await group.said() == []

    async def test_recovery_ends_members(self, harness: Harness) -> None:
        group = Group(harness)
        (claimed,) = await group.begin(1, max_attempts=1)
        await harness.advance(LEASE + 1)
        assert await harness.recover() == {claimed.id}
        assert await group.counts() == (1, 0, 1, 0) and await group.said() == ["ENDED"]

    async def test_a_member_that_is_retried_before_the_end_is_taken_back(self, harness: Harness) -> None:
        group = Group(harness)
        first, second = await group.begin(2)
        await harness.settle(first, TERMINAL)
        assert await group.counts() == (2, 0, 1, 0)
        assert await harness.operate(Event.REDRIVE, first.id)
        await harness.settle(second, Completed())
        assert await group.counts() == (2, 1, 0, 0) and await group.said() == []
        await harness.settle(await harness.claim_one(), Completed())
        assert await group.counts() == (2, 2, 0, 0) and await group.said() == ["ENDED", "SUCCEEDED"]

    async def test_success_may_come_after_the_end(self, harness: Harness) -> None:
        group = Group(harness)
        first, second = await group.begin(2)
        await harness.settle_many([(first, TERMINAL), (second, Completed())])
        assert await group.said() == ["ENDED"]
        ended = (await group.now()).ended_at
        assert await harness.operate(Event.REDRIVE, first.id)
        assert await group.counts() == (2, 1, 0, 0) and await group.said() == ["ENDED"]
        await harness.settle(await harness.claim_one(), Completed())
        assert await group.said() == ["ENDED", "SUCCEEDED"]
        assert (await group.now()).ended_at == ended
        assert [task.kind for task in await harness.claim(9, queues=("after",))] == ["ENDED", "SUCCEEDED"]

    async def test_cancelled_members_come_back_too(self, harness: Harness) -> None:
        group = Group(harness)
        first, _ = await group.begin(2)
        await harness.settle(first, TERMINAL)
        assert await harness.operate(Event.CANCEL, first.id)
        assert await group.counts() == (2, 0, 0, 1)
        assert await harness.operate(Event.REDRIVE, first.id)
        assert await group.counts() == (2, 0, 0, 0)
        assert (await harness.task(first.id)).join_id == group.join.id

    async def test_waiting_members_are_cancelled(self, harness: Harness) -> None:
        group = Group(harness)
        tasks = [harness.new(join=group.join.id), harness.new(join=group.join.id, delay=60.0)]
        await harness.store.apply(Commit(joins=[group.join], enqueues=tasks))
        assert await harness.operate(Event.CANCEL, *(task.id for task in tasks))
        assert await group.counts() == (2, 0, 0, 2) and await group.said() == ["ENDED"]

    async def test_an_open_join_waits_until_it_is_closed(self, harness: Harness) -> None:
        group = Group(harness, is_open=True)
        (claimed,) = await group.begin(1)
        await harness.settle(claimed, Completed())
        assert await group.said() == []
        await group.add()
        await harness.control(CloseJoin(group.join.id))
        assert await group.said() == []
        await harness.settle(await harness.claim_one(), Completed())
        assert await group.counts() == (2, 2, 0, 0) and await group.said() == ["ENDED", "SUCCEEDED"]

    @pytest.mark.parametrize("is_open", [False, True])
    async def test_one_without_members(self, harness: Harness, is_open: bool) -> None:
        group = Group(harness, is_open=is_open)
        await group.begin(0)
        assert await group.said() == ([] if is_open else ["ENDED", "SUCCEEDED"])
        await harness.control(CloseJoin(group.join.id))
        await harness.control(CloseJoin(group.join.id))
        assert await group.said() == ["ENDED", "SUCCEEDED"]
        assert len(await harness.claim(9, queues=("after",))) == 2

    async def test_members_may_come_until_the_end(self, harness: Harness) -> None:
        group = Group(harness)
        (first,) = await group.begin(1)
        await group.add(2)
        await harness.settle(first, Completed())
        assert await group.counts() == (3, 1, 0, 0)
        for claimed in await harness.claim(2):
            await harness.settle(claimed, Completed())
        before = await harness.totals()
        for unknown in (group.join.id, new_id()):
            with pytest.raises(InvalidInput, match=f"join {unknown} takes no members"):
                await harness.enqueue(join=unknown)
        assert await harness.totals() == before

    async def test_two_stores_end_the_last_two_at_once(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(10):
            group = Group(harness)
            first, second = await group.begin(2)
            await asyncio.gather(harness.settle(first, Completed()), harness.settle(second, Completed(), store=other))
            assert await group.counts() == (2, 2, 0, 0) and await group.said() == ["ENDED", "SUCCEEDED"]

    async def test_a_large_one(self, harness: Harness) -> None:
        group = Group(harness)
        members = await group.begin(LARGE)
        half = LARGE // 2
        await harness.settle_many([(claimed, Completed()) for claimed in members[:half]])
        assert await group.counts() == (LARGE, half, 0, 0)
        await harness.settle_many([(claimed, Completed()) for claimed in members[half:-1]] + [(members[-1], TERMINAL)])
        assert await group.counts() == (LARGE, LARGE - 1, 1, 0) and await group.said() == ["ENDED"]
        assert await harness.operate(Event.REDRIVE, members[-1].id)
        assert await group.counts() == (LARGE, LARGE - 1, 0, 0)
        await harness.settle(await harness.claim_one(), Completed())
        assert await group.said() == ["ENDED", "SUCCEEDED"]

    async def test_one_update_for_all_members_of_a_cycle(self, harness: Harness) -> None:
        group = Group(harness)
        members = await group.begin(20)
        costs = []
        for part in (members[:2], members[2:12]):
            async with harness.measure(harness.store) as cost:
                await harness.settle_many([(claimed, Completed()) for claimed in part])
            costs.append(len(cost.statements))
        assert costs[0] == costs[1]

    async def test_nobody_is_found_by_another_id(self, harness: Harness) -> None:
        assert await harness.store.joins([UUID(int=7)]) == []

    async def test_it_is_kept_as_long_as_somebody_can_arrive(self, harness: Harness) -> None:
        done, failing, left = Group(harness), Group(harness), Group(harness, is_open=True)
        (first,) = await done.begin(1)
        await harness.settle(first, Completed())
        (second,) = await failing.begin(1)
        await harness.settle(second, TERMINAL)
        await left.begin(0)
        keep = Retention(history_days=10.0)
        for days, kept in ((1, {done, failing, left}), (10, {failing})):
            await harness.advance(days * 86400.0)
            await harness.store.upkeep("prune", keep)
            found = await harness.store.joins([group.join.id for group in (done, failing, left)])
            assert {join.id for join in found} == {group.join.id for group in kept}
        assert await harness.operate(Event.REDRIVE, second.id)
        await harness.settle(await harness.claim_one(), Completed())
        assert (await failing.now()).succeeded_at is not None
