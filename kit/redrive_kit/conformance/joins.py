"""Joins: every member counts once, and the last one brings what follows, once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from redrive.errors import InvalidInput, ReactionFailed
from redrive.ids import new_id
from redrive.kernel.commit import CloseJoin, Commit
from redrive.kernel.erase import Erase
from redrive.kernel.feature import Need
from redrive.kernel.joins import Join, NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Cancel, Completed, Outcome, Released, Retry, Snooze
from redrive.kernel.payload import encode
from redrive.kernel.ports.reads import get_task
from redrive.kernel.retention import Retention
from redrive.kernel.task import Claimed, NewTask, State
from redrive_kit.conformance.harness import LEASE, RETRY_AT_ONCE, TERMINAL, Harness, TaskOptions, operator_move

LARGE = 1001  # members: from here on arrivals are added up now and then


def callback(kind: str) -> NewTask:
    return NewTask(new_id(), kind, "after", '{"x":1}', scope="s")


class Group:
    """A join with its callbacks, and members that were claimed."""

    def __init__(self, harness: Harness, *, is_open: bool = False) -> None:
        self.harness = harness
        self.join = NewJoin(new_id(), callback("ENDED"), callback("SUCCEEDED"), is_open)

    async def begin(self, members: int, *, max_attempts: int = 3, **facts: object) -> list[Claimed]:
        """Members that were claimed; with facts, those of the probe."""
        given = TaskOptions(join=self.join.id, max_attempts=max_attempts)
        if facts:
            given |= {"feature": "probe", "facts": encode(facts, "facts")}
        tasks = [self.harness.new(**given) for _ in range(members)]
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
            if await get_task(self.harness.store, task.id) is not None:
                found.append(task.kind)
        return found


async def faults(harness: Harness) -> list[str]:
    return list((await harness.store.diagnose()).faults.values())


# What no store would enqueue.
REFUSED: dict[str, TaskOptions] = {
    "payload": {"payload": "{oops"},
    "queue": {"queue": "a b"},
    "attempts": {"max_attempts": 0},
    "priority": {"priority": 10**6},
    "delay": {"delay": -5.0},
    "timeout": {"timeout": 1e12},
    "key": {"idempotency_key": "schedule:x"},
    "facts": {"feature": "probe", "facts": "{"},
    "scope": {"scope": "x" * 600},
    "run_at": {"run_at": datetime(2030, 1, 1, tzinfo=UTC)},
}


class TestJoins:
    @pytest.fixture(autouse=True)
    def _capable(self, harness: Harness) -> None:
        harness.needs(Need.JOINS)

    async def test_the_last_member_brings_what_follows(self, harness: Harness) -> None:
        group = Group(harness)
        first, second, third = await group.begin(3)
        assert first.join == group.join.id and await harness.store.joins([UUID(int=7)]) == []
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

    async def test_members_that_come_back_have_not_arrived(self, harness: Harness) -> None:
        group = Group(harness)
        outcomes: list[Outcome] = [RETRY_AT_ONCE, Retry("later", after=60), Snooze(60), Released()]
        await harness.settle_many(list(zip(await group.begin(4), outcomes, strict=True)))
        assert await group.counts() == (4, 0, 0, 0) and await group.said() == []

    async def test_a_requested_cancel_wins_over_a_retry(self, harness: Harness) -> None:
        group = Group(harness)
        (claimed,) = await group.begin(1)
        await harness.ask_to_cancel(claimed.id)
        await harness.settle(claimed, RETRY_AT_ONCE)
        assert await harness.state(claimed.id) is State.CANCELLED
        assert await group.counts() == (1, 0, 0, 1) and await group.said() == ["ENDED"]

    async def test_a_settlement_that_is_lost_or_sent_again_arrives_at_most_once(self, harness: Harness) -> None:
        group = Group(harness)
        first, second = await group.begin(2)
        for _ in range(3):
            assert await harness.settle(first, Completed(), again=True)
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert not await harness.settle(second, Completed())
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

    @pytest.mark.parametrize("again", [False, True])
    async def test_the_end_of_the_last_member_brings_further_members(self, harness: Harness, again: bool) -> None:
        group, grown = Group(harness), [new_id(), new_id()]
        (last,) = await group.begin(1, grow=[str(task_id) for task_id in grown])
        for _ in range(1 + again):
            assert await harness.settle(last, Completed(), again=again)
        assert await group.counts() == (3, 1, 0, 0) and await group.said() == []
        for claimed in await harness.claim(5, queues=("grown",)):
            assert claimed.join == group.join.id
            await harness.settle(claimed, Completed())
        assert await group.counts() == (3, 3, 0, 0) and await group.said() == ["ENDED", "SUCCEEDED"]
        await harness.check_totals()

    async def test_members_beside_it_arrive_with_it(self, harness: Harness) -> None:
        """One transaction ends a plain member, one that brings another, and one that fails."""
        group = Group(harness)
        plain, failing = await group.begin(2)
        grows = harness.new(join=group.join.id, feature="probe", facts=encode({"grow": [str(new_id())]}, "facts"))
        await harness.store.apply(Commit(enqueues=[grows]))
        outcomes: list[tuple[Claimed, Outcome]] = [(plain, Completed()), (failing, TERMINAL)]
        await harness.settle_many([*outcomes, (await harness.claim_one(), Completed())])
        assert await group.counts() == (4, 2, 1, 0) and await group.said() == []
        await harness.settle(await harness.claim_one(queues=("grown",)), Completed())
        assert await group.counts() == (4, 3, 1, 0) and await group.said() == ["ENDED"]

    async def test_a_large_one_grows_too(self, harness: Harness) -> None:
        group = Group(harness)
        members = await group.begin(LARGE)
        await harness.settle_many([(claimed, Completed()) for claimed in members[1:]])
        grows = harness.new(join=group.join.id, feature="probe", facts=encode({"grow": [str(new_id())]}, "facts"))
        await harness.store.apply(Commit(enqueues=[grows]))
        last = await harness.claim_one()
        await harness.settle_many([(members[0], Completed()), (last, Completed())])
        assert await group.counts() == (LARGE + 2, LARGE + 1, 0, 0) and await group.said() == []
        await harness.settle(await harness.claim_one(queues=("grown",)), Completed())
        assert await group.said() == ["ENDED", "SUCCEEDED"]

    @pytest.mark.parametrize("members", [2, LARGE + 1])
    async def test_a_member_that_is_retried_after_the_end_may_add_others(self, harness: Harness, members: int) -> None:
        """By its reaction or its handler; what came at the end does not come again, and success waits for all."""
        group = Group(harness)
        tasks = await group.begin(members - 1)
        grows = harness.new(join=group.join.id, feature="probe", facts=encode({"grow": [str(new_id())]}, "facts"))
        await harness.store.apply(Commit(enqueues=[grows]))
        last = await harness.claim_one()
        await harness.settle_many([*((task, Completed()) for task in tasks), (last, TERMINAL)])
        assert await group.said() == ["ENDED"]
        with pytest.raises(InvalidInput, match="takes no members"):
            await group.add()
        assert await harness.operate(Event.REDRIVE, last.id)
        again = await harness.claim_one()
        await harness.enqueue("BY_HAND", join=group.join.id, queue="grown")
        await harness.settle(again, Completed())
        assert await group.counts() == (members + 2, members, 0, 0) and await group.said() == ["ENDED"]
        await harness.settle_many([(task, Completed()) for task in await harness.claim(5, queues=("grown",))])
        assert await group.said() == ["ENDED", "SUCCEEDED"]
        assert [task.kind for task in await harness.claim(9, queues=("after",))] == ["ENDED", "SUCCEEDED"]

    async def test_what_is_not_there_is_not_closed(self, harness: Harness) -> None:
        """Nothing of such a settlement is kept, and the feature is named."""
        with pytest.raises(InvalidInput, match="there is no join"):
            await harness.control(CloseJoin(new_id()))
        (member,) = await Group(harness).begin(1, close=[str(new_id())])
        with pytest.raises(ReactionFailed, match=r"the feature 'probe' failed to close its joins: there is no join"):
            await harness.settle(member, Completed())
        assert await harness.state(member.id) is State.RUNNING

    async def test_callbacks_about_somebody_go_before_the_last_member(self, harness: Harness) -> None:
        """An erasure gives the last member up: nothing about the same person is enqueued by that."""
        join = NewJoin(new_id(), on_complete=NewTask(new_id(), "MAIL", "after", '{"to":"bob"}', scope="bob"))
        task = harness.new(join=join.id, scope="bob")
        await harness.store.apply(Commit(joins=[join], enqueues=[task]))
        moves = [operator_move(Event.CANCEL, task.id)]
        erase = Erase("erased:1", (task.id,), callbacks="bob")
        applied = await harness.store.apply(Commit(transitions=moves, erase=erase))
        assert applied.erased["joins"] == 1 and await harness.claim(5, queues=("after",)) == []
        (found,) = await harness.store.joins([join.id])
        assert found.cancelled == 1 and found.ended_at is not None

    async def test_the_end_of_a_join_is_a_member_of_another(self, harness: Harness) -> None:
        """A member opens a join of its own: the outer one waits for what that one brings."""
        group, inner, end = Group(harness), new_id(), new_id()
        (member,) = await group.begin(1, inner=str(inner), end=str(end), grow=[str(new_id()), str(new_id())])
        await harness.settle(member, Completed())
        assert await group.counts() == (2, 1, 0, 0) and await group.said() == []
        first, second = await harness.claim(5, queues=("grown",))
        assert first.join == second.join == inner
        await harness.settle(first, Completed())
        assert await get_task(harness.store, end) is None
        await harness.settle(second, TERMINAL)
        last = await harness.claim_one(queues=("grown",))
        assert (last.id, last.join) == (end, group.join.id) and await group.said() == []
        await harness.settle(last, Completed())
        assert await group.counts() == (2, 2, 0, 0) and await group.said() == ["ENDED", "SUCCEEDED"]
        await harness.check_totals()

    async def test_nested_in_one_commit_and_empty(self, harness: Harness) -> None:
        """Both are opened at once, the inner one has no members, and its end is the outer one's only member."""
        outer = Group(harness)
        end = NewTask(new_id(), "INNER_ENDED", "grown", None, join=outer.join.id)
        await harness.store.apply(Commit(joins=[outer.join, NewJoin(new_id(), on_complete=end)]))
        assert await outer.counts() == (1, 0, 0, 0) and await outer.said() == []
        await harness.settle(await harness.claim_one(queues=("grown",)), Completed())
        assert await outer.said() == ["ENDED", "SUCCEEDED"]

    async def test_an_end_that_is_not_enqueued_is_not_waited_for(self, harness: Harness) -> None:
        """Its key names other work."""
        outer = Group(harness)
        await harness.enqueue(queue="other", idempotency_key="k")
        end = NewTask(new_id(), "INNER_ENDED", "grown", None, join=outer.join.id, idempotency_key="k")
        await harness.store.apply(Commit(joins=[outer.join, NewJoin(new_id(), on_complete=end)]))
        assert await outer.counts() == (1, 0, 0, 1) and await outer.said() == ["ENDED"]
        assert await faults(harness) == ["INNER_ENDED was not enqueued: its idempotency key names other work"]

    @pytest.mark.parametrize("when", ["on_complete", "on_success"])
    async def test_what_could_not_be_enqueued_is_refused_at_the_opening(self, harness: Harness, when: str) -> None:
        for wrong, options in REFUSED.items():
            follows: dict[str, Any] = {when: harness.new("DONE", **options)}
            with pytest.raises(InvalidInput, match=when):
                await harness.store.apply(Commit(joins=[NewJoin(new_id(), **follows)]))
            assert await harness.totals() == {}, wrong

    @pytest.mark.parametrize("members", [1, LARGE])
    async def test_what_is_refused_at_the_end_holds_nobody_up(self, harness: Harness, members: int) -> None:
        """Its id is taken meanwhile: the members have ended, the next join too, and somebody can see it."""
        bad, good = Group(harness), Group(harness)
        tasks = await bad.begin(members) + await good.begin(members)
        assert bad.join.on_complete is not None
        await harness.enqueue("THIEF", id=bad.join.on_complete.id, queue="other")
        cycle = await harness.settle_many([(claimed, Completed()) for claimed in tasks])
        assert cycle.lost == set() and await good.said() == ["ENDED", "SUCCEEDED"]
        found = await bad.now()
        assert (found.completed, found.ended_at is not None) == (members, True)
        assert found.fault == "ENDED was not enqueued: its id is taken"
        assert await faults(harness) == [found.fault] and "SUCCEEDED" in await bad.said()
        await harness.check_totals()

    async def test_what_could_not_end_is_refused(self, harness: Harness) -> None:
        done, one, two = harness.new("DONE"), new_id(), new_id()
        with pytest.raises(InvalidInput, match="on_success cannot be a member"):
            NewJoin(one, on_success=harness.new(join=two))
        with pytest.raises(InvalidInput, match="are the same task"):
            NewJoin(one, on_complete=done, on_success=done)
        with pytest.raises(InvalidInput, match="its own end"):
            NewJoin(one, on_complete=harness.new("DONE", join=one))
        circle = [NewJoin(a, on_complete=harness.new("DONE", join=b)) for a, b in ((one, two), (two, one))]
        with pytest.raises(InvalidInput, match="wait for each other"):
            await harness.store.apply(Commit(joins=circle))

    async def test_a_commit_with_a_join_is_sent_again(self, harness: Harness) -> None:
        group = Group(harness)
        task = harness.new(join=group.join.id)
        posting = Posting("p", (("system:world", -5), ("ann", 5)))
        commit = Commit(joins=[group.join], enqueues=[task], postings=[posting])
        for again in (False, True):
            applied = await harness.store.apply(commit, again=again)
            assert [(answer.id, answer.created) for answer in applied.enqueued] == [(task.id, True)]
        assert await group.counts() == (1, 0, 0, 0) and await harness.store.sql.balance("ann") == 5

    async def test_one_that_is_left_open_is_told_of(self, harness: Harness) -> None:
        group = Group(harness, is_open=True)
        await group.begin(0)
        assert (await harness.store.diagnose()).left_open == 0
        await harness.advance(8 * 86400.0)
        assert (await harness.store.diagnose()).left_open == 1

    async def test_nobody_nests_in_one_that_has_ended(self, harness: Harness) -> None:
        outer = Group(harness)
        await outer.begin(0)
        end = NewTask(new_id(), "INNER_ENDED", "grown", None, join=outer.join.id)
        with pytest.raises(InvalidInput, match="takes no members"):
            await harness.store.apply(Commit(joins=[NewJoin(new_id(), on_complete=end)]))

    async def test_an_outer_one_is_kept_while_the_inner_one_lives(self, harness: Harness) -> None:
        outer, inner = Group(harness), new_id()
        end = NewTask(new_id(), "INNER_ENDED", "grown", None, join=outer.join.id)
        member = harness.new(join=inner)
        await harness.store.apply(Commit(joins=[outer.join, NewJoin(inner, on_complete=end)], enqueues=[member]))
        await harness.advance(20 * 86400.0)
        await harness.store.upkeep("prune", Retention(history_days=10.0))
        await harness.settle(await harness.claim_one(), Completed())
        await harness.settle(await harness.claim_one(queues=("grown",)), Completed())
        assert await outer.said() == ["ENDED", "SUCCEEDED"]

    async def test_an_end_that_is_erased_is_not_waited_for(self, harness: Harness) -> None:
        outer, inner = Group(harness), NewJoin(new_id(), open=True)
        end = NewTask(new_id(), "INNER_ENDED", "grown", None, join=outer.join.id, scope="bob")
        await harness.store.apply(Commit(joins=[outer.join, replace(inner, on_complete=end)]))
        await harness.store.apply(Commit(erase=Erase(tombstone="erased:1", scope="bob")))
        assert await outer.counts() == (1, 0, 0, 1) and await outer.said() == ["ENDED"]

    async def test_a_reaction_closes_joins(self, harness: Harness) -> None:
        group, other = Group(harness, is_open=True), Group(harness, is_open=True)
        await other.begin(0)
        (member,) = await group.begin(1, close=[str(group.join.id), str(other.join.id)])
        await harness.settle(member, Completed())
        assert await group.said() == await other.said() == ["ENDED", "SUCCEEDED"]

    async def test_statements_do_not_grow_with_what_is_opened(self, harness: Harness) -> None:
        costs = []
        for members in (1, 5):
            group = Group(harness)
            tasks = [
                harness.new(
                    join=group.join.id,
                    feature="probe",
                    facts=encode({"inner": str(new_id()), "end": str(new_id()), "grow": [str(new_id())]}, "facts"),
                )
                for _ in range(members)
            ]
            await harness.store.apply(Commit(joins=[group.join], enqueues=tasks))
            claimed = await harness.claim(members)
            async with harness.measure(harness.store) as cost:
                await harness.settle_many([(task, Completed()) for task in claimed])
            costs.append(len(cost.statements))
        assert costs[0] == costs[1]

    async def test_crossing_ends_do_not_deadlock(self, harness: Harness) -> None:
        """Members of two joins end together; now the one and now the other brings a further member."""
        stores, groups = (harness.store, await harness.another()), (Group(harness), Group(harness))

        def member(n: int, which: int) -> NewTask:
            grow = [str(new_id())] if n % 2 == which else []
            facts = encode({"grow": grow}, "facts")
            return harness.new(f"K{n}", join=groups[which].join.id, feature="probe", facts=facts)

        tasks = [member(n, which) for n in range(20) for which in (0, 1)]
        await harness.store.apply(Commit(joins=[group.join for group in groups], enqueues=tasks))
        pairs: dict[str, list[Claimed]] = {}
        for claimed in await harness.claim(40):
            pairs.setdefault(claimed.kind, []).append(claimed)
        ends = [Commit(transitions=[harness.decide(task, Completed()) for task in pair]) for pair in pairs.values()]
        await asyncio.gather(*(stores[n % 2].cycle(end, None) for n, end in enumerate(ends)))
        for group in groups:
            assert await group.counts() == (30, 20, 0, 0)

    async def test_it_is_kept_as_long_as_somebody_can_arrive(self, harness: Harness) -> None:
        done, failing, left = Group(harness), Group(harness), Group(harness, is_open=True)
        (first,) = await done.begin(1)
        await harness.settle(first, Completed())
        (second,) = await failing.begin(1)
        await harness.settle(second, TERMINAL)
        await left.begin(0)
        keep = Retention(history_days=10.0)
        for days, kept in ((1, {done, failing, left}), (10, {failing, left})):
            await harness.advance(days * 86400.0)
            await harness.store.upkeep("prune", keep)
            found = await harness.store.joins([group.join.id for group in (done, failing, left)])
            assert {join.id for join in found} == {group.join.id for group in kept}
        assert await harness.operate(Event.REDRIVE, second.id)
        await harness.settle(await harness.claim_one(), Completed())
        assert (await failing.now()).succeeded_at is not None
