"""The fence: a lease token commits at most once, and only while it is current."""

from __future__ import annotations

import asyncio

from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed, Released
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, SETTLED, TERMINAL, Harness, failing

ROUNDS = 12


async def taken_over(harness: Harness) -> tuple[Claimed, Claimed]:
    """A task whose first worker lost its lease to a second one."""
    first = await harness.running()
    await harness.advance(LEASE + 1)
    assert await harness.recover() == {first.id}
    second = await harness.claim_one(worker="w2")
    assert second.id == first.id and second.token != first.token
    return first, second


class TestFence:
    async def test_a_late_settlement_is_refused_and_changes_nothing(self, harness: Harness) -> None:
        """By a cycle of another store, and where a commit carries more than a settlement."""
        first, second = await taken_over(harness)
        before, other = await harness.store.timeline(first.id), await harness.another()
        for name, (outcome, _) in SETTLED.items():
            assert not await harness.settle(first, outcome, store=other), name
            moves = [harness.decide(first, outcome)]
            assert (await harness.store.apply(Commit(transitions=moves))).lost == {first.id}, name
            assert await harness.store.timeline(first.id) == before, name
        await harness.check_totals()
        assert await harness.settle(second, Completed())

    async def test_a_late_heartbeat_is_refused_and_changes_nothing(self, harness: Harness) -> None:
        first, second = await taken_over(harness)
        assert await harness.renew(second, progress={second.id: '"half"'})
        before = await harness.task(first.id)
        assert not await harness.renew(first, 3600.0)
        assert not await harness.renew(first, progress={first.id: '"from the past"'})
        assert await harness.task(first.id) == before and before.progress == "half"

    async def test_a_token_commits_once(self, harness: Harness) -> None:
        for first, (ended_by, _) in SETTLED.items():
            claimed = await harness.running(queue=first)
            assert await harness.settle(claimed, ended_by)
            before = await harness.store.timeline(claimed.id)
            for second, (outcome, _) in SETTLED.items():
                assert not await harness.settle(claimed, outcome), (first, second)
                assert await harness.store.timeline(claimed.id) == before, (first, second)
        await harness.check_totals()

    async def test_old_and_new_lease_of_one_task_in_one_call(self, harness: Harness) -> None:
        """A worker that got its own task back settles both leases at once: only the current one counts."""
        for outcome, state in (SETTLED["complete"], SETTLED["fail"]):
            first, second = await taken_over(harness)
            await harness.settle_many([(first, outcome), (second, outcome)])
            assert await harness.state(first.id) is state
            assert await harness.count(state) == 1
            await harness.check_totals()

    async def test_a_token_commits_once_under_concurrency(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(ROUNDS):
            claimed = await harness.running()
            landed = await asyncio.gather(
                harness.settle(claimed, Completed()),
                harness.settle(claimed, TERMINAL, store=other),
                harness.settle(claimed, failing(), store=other),
            )
            assert sum(landed) == 1
            winner = [State.COMPLETED, State.FAILED, State.DELAYED][landed.index(True)]
            assert await harness.state(claimed.id) is winner
        await harness.check_totals()

    async def test_the_attempt_number_is_not_a_fence(self, harness: Harness) -> None:
        """After an operator's retry the number repeats; the first worker must still be kept out."""
        first = await harness.running(max_attempts=1)
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert await harness.operate(Event.REDRIVE, first.id)
        second = await harness.claim_one(worker="w2")
        assert (first.attempt, second.attempt) == (1, 1)
        assert not await harness.settle(first, Completed())
        assert not await harness.renew(first)
        assert await harness.state(first.id) is State.RUNNING
        assert await harness.settle(second, Completed())

    async def test_an_unknown_token_is_refused(self, harness: Harness) -> None:
        one, two = await harness.enqueue_many(2)
        mine, theirs = await harness.claim_one(), await harness.claim_one()
        assert {mine.id, theirs.id} == {one, two}
        mine.token, theirs.token = theirs.token, mine.token
        assert not await harness.settle(mine, Completed())
        assert not await harness.settle(theirs, failing())
        assert not await harness.renew(mine)
        assert await harness.count(State.RUNNING) == 2

    async def test_only_the_lost_settlements_of_a_call_are_refused(self, harness: Harness) -> None:
        first, second = await taken_over(harness)
        await harness.enqueue_many(2)
        good = await harness.claim(2)
        cycle = await harness.settle_many([(good[0], Completed()), (first, Completed()), (good[1], failing())])
        assert cycle.lost == {first.id}
        assert [await harness.state(task.id) for task in good] == [State.COMPLETED, State.DELAYED]
        assert (await harness.task(first.id)).lease_token == second.token

    async def test_again_recognises_what_landed(self, harness: Harness) -> None:
        """The answer to the first try was lost. A repeat is told the truth: it landed."""
        for name, (outcome, state) in SETTLED.items():
            claimed = await harness.running(queue=name)
            assert await harness.settle(claimed, outcome)
            before = await harness.store.timeline(claimed.id)
            assert await harness.settle(claimed, outcome, again=True), name
            assert await harness.store.timeline(claimed.id) == before, name
            assert await harness.state(claimed.id) is state, name
        await harness.check_totals()

    async def test_again_recognises_what_landed_with_other_things(self, harness: Harness) -> None:
        """The same for a Commit that is more than a settlement: what landed then is no loss now."""
        for name, (outcome, state) in SETTLED.items():
            claimed = await harness.running(queue=name)
            commit = Commit(transitions=[harness.decide(claimed, outcome)], audits=[Audit("ann", "TRIED")])
            assert (await harness.store.apply(commit)).lost == set(), name
            assert (await harness.store.apply(commit)).lost == {claimed.id}, name
            assert (await harness.store.apply(commit, again=True)).lost == set(), name
            assert await harness.state(claimed.id) is state, name
        await harness.check_totals()

    async def test_again_does_not_excuse_a_lost_lease(self, harness: Harness) -> None:
        first, second = await taken_over(harness)
        assert not await harness.settle(first, Released(), again=True)
        assert (await harness.task(first.id)).lease_token == second.token
