"""Reactions: what a feature adds lands with the move that it reacts to, or not at all."""

from __future__ import annotations

import pytest

from redrive.errors import ReactionFailed, RedriveError
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Need
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed, HandedBack, Snooze
from redrive.kernel.payload import encode
from redrive.kernel.ports.reads import get_task
from redrive.kernel.reactions import Rows
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import LEASE, RETRY_AT_ONCE, TERMINAL, Harness
from redrive_kit.conformance.probe import BROKEN, WORLD


async def probed(harness: Harness, **facts: object) -> Claimed:
    """A claimed task that the probe reacts to."""
    return await harness.running(feature="probe", facts=encode(facts, "facts"))


async def seen(harness: Harness, claimed: Claimed) -> list[tuple[str, str]]:
    """Where the probe was told that the task was, and where it went."""
    rows = await harness.store.sql.feature_rows("probe", "all", harness.as_argument(claimed.id))
    return [(row["was"], row["state"]) for row in rows]


class TestReactions:
    @pytest.fixture(autouse=True)
    def _capable(self, harness: Harness) -> None:
        harness.needs(Need.REACTIONS)

    async def test_effects_land_with_the_move(self, harness: Harness) -> None:
        await harness.store.apply(Commit(postings=[Posting("g", ((WORLD, -100), ("ann", 100)))]))
        following = new_id()
        claimed = await probed(harness, account="ann", price=30, next=str(following))
        assert claimed.feature == "probe"
        assert await harness.settle(claimed, Completed("5"))
        task = await harness.task(claimed.id)
        assert (task.state, task.result, task.feature) == (State.COMPLETED, 5, "probe")
        assert await seen(harness, claimed) == [("running", "completed")]
        assert await harness.store.sql.balance("ann") == 70
        assert await harness.state(following) is State.QUEUED
        assert [row.action for row in await harness.audit(task_id=claimed.id)] == ["PROBE_DONE"]
        await harness.check_totals()

    async def test_whoever_does_not_know_the_feature_hands_the_task_back(self, harness: Harness) -> None:
        stranger = await harness.another(features=())
        claimed = await probed(harness)
        assert not await harness.settle(claimed, Completed(), store=stranger)
        plain = await harness.running()
        async with harness.measure(stranger) as usual:
            assert await harness.settle(plain, Snooze(10), store=stranger)
        async with harness.measure(stranger) as cost:
            assert await harness.settle(claimed, HandedBack(), store=stranger)
        assert len(cost.statements) <= len(usual.statements)
        task = await harness.task(claimed.id)
        assert (task.state, task.attempt_count, task.lease_token) == (State.DELAYED, 0, None)
        assert await seen(harness, claimed) == []
        await harness.advance(11)
        await harness.tick()
        await harness.settle_many([(task, Completed()) for task in await harness.claim(2)])
        assert await seen(harness, claimed) == [("running", "completed")]
        await harness.check_totals()

    async def test_one_that_is_to_be_cancelled_is_left_to_recovery(self, harness: Harness) -> None:
        """By a process that knows what its end entails."""
        stranger = await harness.another(features=())
        claimed = await probed(harness)
        await harness.ask_to_cancel(claimed.id)
        assert not await harness.settle(claimed, HandedBack(), store=stranger)
        assert await harness.state(claimed.id) is State.RUNNING
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert await seen(harness, claimed) == [("running", "cancelled")]

    async def test_every_move_is_told(self, harness: Harness) -> None:
        claimed = await probed(harness)
        await harness.settle(claimed, RETRY_AT_ONCE)
        again = await harness.claim_one()
        await harness.settle(again, TERMINAL)
        await harness.operate(Event.REDRIVE, claimed.id)
        await harness.operate(Event.CANCEL, claimed.id)
        await harness.operate(Event.REDRIVE, claimed.id)
        assert await seen(harness, claimed) == [
            ("running", "queued"),
            ("running", "failed"),
            ("failed", "queued"),
            ("queued", "cancelled"),
            ("cancelled", "queued"),
        ]
        assert (await harness.task(claimed.id)).feature == "probe"

    async def test_it_is_told_what_landed_not_what_was_asked(self, harness: Harness) -> None:
        claimed = await probed(harness)
        await harness.ask_to_cancel(claimed.id)
        await harness.settle(claimed, RETRY_AT_ONCE)
        assert await seen(harness, claimed) == [("running", "cancelled")]

    async def test_a_lost_settlement_has_no_effects(self, harness: Harness) -> None:
        claimed = await probed(harness)
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert not await harness.settle(claimed, Completed())
        assert await seen(harness, claimed) == [("running", "queued")]

    async def test_again_also_where_another_move_of_the_call_is_refused(self, harness: Harness) -> None:
        """The answer was lost, and meanwhile a reaction fails: what had landed is no loss."""
        landed, refused = await probed(harness), await probed(harness, **{"raise on": "completed"})
        assert await harness.settle(landed, Completed())
        moves = [harness.decide(claimed, Completed()) for claimed in (landed, refused)]
        applied = await harness.store.apply(Commit(transitions=moves), again=True)
        assert applied.lost == {refused.id} and await harness.state(refused.id) is State.RUNNING
        assert len(await seen(harness, landed)) == 1

    async def test_a_settlement_that_is_sent_again_has_them_once(self, harness: Harness) -> None:
        await harness.store.apply(Commit(postings=[Posting("g", ((WORLD, -100), ("ann", 100)))]))
        claimed = await probed(harness, account="ann", price=30)
        for _ in range(2):
            assert await harness.settle(claimed, Completed(), again=True)
        assert await seen(harness, claimed) == [("running", "completed")]
        assert await harness.store.sql.balance("ann") == 70

    async def test_one_that_fails_keeps_the_task_as_it_was(self, harness: Harness) -> None:
        claimed = await probed(harness, **{"raise on": "completed"})
        beside = await harness.running("B")
        with pytest.raises(RedriveError, match="the feature 'probe' failed to react"):
            await harness.settle_many([(claimed, Completed()), (beside, Completed())])
        assert await harness.state(claimed.id) is await harness.state(beside.id) is State.RUNNING
        assert await harness.settle(beside, Completed()) and await harness.settle(claimed, TERMINAL)
        await harness.check_totals()

    async def test_what_cannot_be_written_is_the_features_fault(self, harness: Harness) -> None:
        """Whatever is asked of such a task, it stays as it is, and nobody else is held up."""
        for broken in BROKEN:
            claimed, beside = await probed(harness, broken=broken), await harness.running("B")
            with pytest.raises(ReactionFailed, match=r"the feature 'probe' failed to (write its|react)"):
                await harness.settle_many([(claimed, Completed()), (beside, Completed())])
            for outcome in (Completed(), TERMINAL):
                applied = await harness.store.apply(Commit(transitions=[harness.decide(claimed, outcome)]))
                assert applied.lost == {claimed.id} and "probe" in applied.refused[claimed.id], broken
            assert await harness.state(claimed.id) is State.RUNNING and await seen(harness, claimed) == [], broken
            assert await harness.settle(beside, Completed()), broken
        await harness.check_totals()

    async def test_what_is_no_effect_is_the_features_fault(self, harness: Harness) -> None:
        for part in ("tasks", "postings", "audits", "rows", "joins", "closes"):
            claimed = await probed(harness, rubbish=part)
            with pytest.raises(ReactionFailed, match=f"among its {part} is object"):
                await harness.settle(claimed, Completed())
            assert await harness.state(claimed.id) is State.RUNNING, part

    async def test_one_that_fails_does_not_keep_others_from_being_recovered(self, harness: Harness) -> None:
        claimed = await probed(harness, **{"raise on": "queued"})
        beside = await harness.running("B")
        await harness.advance(LEASE + 1)
        moves = await harness.look_for_expired()
        applied = await harness.store.apply(Commit(transitions=moves))
        assert applied.lost == {claimed.id} and "probe" in applied.refused[claimed.id]
        assert await harness.state(beside.id) is State.QUEUED and await harness.state(claimed.id) is State.RUNNING

    async def test_money_that_is_not_there_refuses_the_settlement(self, harness: Harness) -> None:
        claimed = await probed(harness, account="poor", price=5)
        with pytest.raises(RedriveError, match="account 'poor' would go below zero"):
            await harness.settle(claimed, Completed())
        assert await harness.state(claimed.id) is State.RUNNING and await seen(harness, claimed) == []

    async def test_who_does_not_know_the_feature_leaves_its_tasks_alone(self, harness: Harness) -> None:
        stranger = await harness.another(features=())
        claimed, beside = await probed(harness), await harness.running("B")
        await harness.advance(LEASE + 1)
        assert [move.task_id for move in await harness.look_for_expired(stranger)] == [beside.id]
        assert await harness.recover(stranger) == {beside.id}
        # Also where it does not ask first.
        applied = await stranger.apply(Commit(transitions=await harness.look_for_expired()))
        assert applied.lost == {claimed.id} and await harness.state(claimed.id) is State.RUNNING
        assert await harness.recover() == {claimed.id}
        assert not await harness.operate(Event.CANCEL, claimed.id, store=stranger)
        assert await harness.operate(Event.CANCEL, claimed.id)
        assert not await harness.operate(Event.REDRIVE, claimed.id, store=stranger)
        assert await harness.operate(Event.REDRIVE, claimed.id)
        await harness.settle(await harness.claim_one(), Completed(), store=stranger)

    async def test_who_does_not_know_the_feature_settles_nothing_of_it(self, harness: Harness) -> None:
        stranger = await harness.another(features=())
        claimed = await probed(harness)
        assert not await harness.settle(claimed, Completed(), store=stranger)
        assert not await harness.settle(claimed, TERMINAL, store=stranger)
        assert await harness.settle(claimed, Completed())

    async def test_a_handlers_own_transaction(self, harness: Harness) -> None:
        claimed = await probed(harness)
        async with harness.store.sql.transaction(lambda: harness.decide(claimed, Completed())) as tx:
            await tx.execute("select 1")
        assert await seen(harness, claimed) == [("running", "completed")]

    async def test_members_of_joins_react_too(self, harness: Harness) -> None:
        join = NewJoin(new_id())
        task = harness.new(feature="probe", join=join.id)
        await harness.store.apply(Commit(joins=[join], enqueues=[task]))
        claimed = await harness.claim_one()
        await harness.settle(claimed, Completed())
        (found,) = await harness.store.joins([join.id])
        assert found.ended_at is not None and await seen(harness, claimed) == [("running", "completed")]

    async def test_rows_of_a_feature_in_a_commit(self, harness: Harness) -> None:
        claimed = await probed(harness)
        row = {"task": str(claimed.id), "was": "nowhere", "state": "here", "event": "none"}
        await harness.store.apply(Commit(rows=[Rows("probe", "seen", (row,))]))
        assert await seen(harness, claimed) == [("nowhere", "here")]

    async def test_a_statement_for_all_moves_of_a_cycle(self, harness: Harness) -> None:
        await harness.store.apply(Commit(enqueues=[harness.new(feature="probe") for _ in range(12)]))
        claimed = await harness.claim(12)
        costs = []
        for part in (claimed[:2], claimed[2:]):
            async with harness.measure(harness.store) as cost:
                await harness.settle_many([(task, Completed()) for task in part])
            costs.append(len(cost.statements))
        assert costs[0] == costs[1]

    async def test_kinds_of_a_feature_keep_their_history_as_they_say(self, harness: Harness) -> None:
        claimed = await probed(harness)
        done = harness.decide(claimed, Completed())
        done.keep = 0
        assert not (await harness.store.cycle(Commit(transitions=[done]), None)).lost
        assert await get_task(harness.store, claimed.id) is None
        assert await seen(harness, claimed) == [("running", "completed")]
