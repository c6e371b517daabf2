"""Recovery: leases that ran out, against workers that are not as dead as they look."""

from __future__ import annotations

import asyncio

from redrive.kernel.commit import Commit
from redrive.kernel.machine import DeadReason
from redrive.kernel.outcome import Completed
from redrive.kernel.task import State
from redrive_kit.conformance.harness import LEASE, Harness

ROUNDS = 12


class TestRecover:
    async def test_leases_are_found_by_what_their_tasks_belong_to(self, harness: Harness) -> None:
        """Whoever recovers plain tasks and whoever recovers those of a feature do not meet."""
        plain, own = await harness.running(), await harness.running(feature="probe")
        await harness.advance(LEASE + 1)
        assert [lease.id for lease in await harness.store.expired(10)] == [plain.id]
        assert [(lease.id, lease.feature) for lease in await harness.store.expired(10, "probe")] == [(own.id, "probe")]
        assert await harness.store.expired(10, "unheard of") == []

    async def test_a_live_lease_is_left_alone(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.advance(LEASE - 5)
        assert await harness.store.expired(10) == []
        assert await harness.recover() == set()
        assert await harness.settle(claimed, Completed())

    async def test_an_expired_lease_goes_back_to_the_queue(self, harness: Harness) -> None:
        claimed = await harness.running(trace_id="trace-1", timeout=90.0)
        await harness.advance(LEASE + 1)
        (lease,) = await harness.store.expired(10)
        assert (lease.id, lease.token, lease.attempt, lease.max_attempts, lease.worker_id) == (
            claimed.id,
            claimed.token,
            1,
            3,
            "w1",
        )
        assert (lease.kind, lease.queue, lease.trace_id, lease.timeout) == (
            claimed.kind,
            claimed.queue,
            "trace-1",
            90.0,
        )
        assert LEASE < lease.seconds < LEASE + 60
        assert await harness.recover(await harness.another()) == {claimed.id}
        task = await harness.task(claimed.id)
        assert (task.state, task.attempt_count, task.error_reason) == (State.QUEUED, 1, "lease_expired")
        timeline = await harness.store.timeline(claimed.id)
        assert timeline is not None
        assert [(a.attempt, a.reason, a.worker_id) for a in timeline.attempts] == [(1, "lease_expired", "w1")]
        await harness.check_totals()

    async def test_with_attempts_used_up_it_fails(self, harness: Harness) -> None:
        claimed = await harness.running(max_attempts=1)
        await harness.advance(LEASE + 1)
        assert await harness.recover() == {claimed.id}
        assert await harness.state(claimed.id) is State.FAILED
        (letter,) = await harness.letters(claimed.id)
        assert (letter.reason, letter.error_reason) == (DeadReason.MAX_ATTEMPTS, "lease_expired")
        await harness.check_totals()

    async def test_expired_is_bounded_and_oldest_first(self, harness: Harness) -> None:
        ids = await harness.enqueue_many(6)
        for _ in ids:
            await harness.claim_one(lease=10.0)
            await harness.advance(1)
        await harness.advance(60)
        assert [lease.id for lease in await harness.store.expired(4)] == ids[:4]

    async def test_handler_finishes_before_recovery_moves(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.advance(LEASE + 1)
        moves = await harness.look_for_expired()
        assert len(moves) == 1
        assert await harness.settle(claimed, Completed())
        assert (await harness.store.apply(Commit(transitions=moves))).lost == {claimed.id}
        assert await harness.state(claimed.id) is State.COMPLETED
        await harness.check_totals()

    async def test_recovery_moves_before_handler_finishes(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.advance(LEASE + 1)
        assert await harness.recover() == {claimed.id}
        assert not await harness.settle(claimed, Completed())
        assert await harness.state(claimed.id) is State.QUEUED
        await harness.check_totals()

    async def test_both_at_once_one_wins(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(ROUNDS):
            claimed = await harness.running()
            await harness.advance(LEASE + 1)
            moves = await harness.look_for_expired(other)
            landed, applied = await asyncio.gather(
                harness.settle(claimed, Completed()), other.apply(Commit(transitions=moves))
            )
            assert landed == (claimed.id in applied.lost)
            if not landed:
                assert await harness.settle(await harness.claim_one(), Completed())
        assert await harness.totals() == {("default", "A", State.COMPLETED): ROUNDS}
        await harness.check_totals()

    async def test_a_lease_renewed_after_the_look_is_respected(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.advance(LEASE + 1)
        moves = await harness.look_for_expired()
        assert len(moves) == 1
        assert await harness.renew(claimed)
        before = await harness.store.timeline(claimed.id)
        assert (await harness.store.apply(Commit(transitions=moves))).lost == {claimed.id}
        assert await harness.store.timeline(claimed.id) == before
        assert await harness.settle(claimed, Completed())

    async def test_a_lease_taken_back_before_the_renewal_is_gone(self, harness: Harness) -> None:
        claimed = await harness.running()
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert not await harness.renew(claimed)
        assert await harness.state(claimed.id) is State.QUEUED

    async def test_renewal_and_recovery_at_once_one_wins(self, harness: Harness) -> None:
        other = await harness.another()
        for _ in range(ROUNDS):
            claimed = await harness.running()
            await harness.advance(LEASE + 1)
            moves = await harness.look_for_expired(other)
            renewed, applied = await asyncio.gather(harness.renew(claimed), other.apply(Commit(transitions=moves)))
            assert renewed == (claimed.id in applied.lost)
            if not renewed:
                claimed = await harness.claim_one()
            assert await harness.settle(claimed, Completed())

    async def test_two_recoverers_take_each_lease_back_once(self, harness: Harness) -> None:
        other = await harness.another()
        ids = await harness.enqueue_many(30)
        await harness.claim(30)
        await harness.advance(LEASE + 1)
        here, there = await harness.look_for_expired(), await harness.look_for_expired(other)
        one, two = await asyncio.gather(
            harness.store.apply(Commit(transitions=here)), other.apply(Commit(transitions=list(reversed(there))))
        )
        assert one.lost | two.lost == set(ids) and not one.lost & two.lost
        assert await harness.totals() == {("default", "A", State.QUEUED): 30}
        assert {(await harness.task(i)).attempt_count for i in ids} == {1}
        await harness.check_totals()

    async def test_recovery_runs_again_after_more_expire(self, harness: Harness) -> None:
        """A look that found nothing must not make later ones blind."""
        await harness.enqueue_many(2)
        first = await harness.claim_one(lease=10.0)
        second = await harness.claim_one(lease=200.0)
        await harness.tick()
        await harness.advance(100)
        await harness.tick()
        assert await harness.recover() == {first.id}
        await harness.tick()
        await harness.advance(101)
        await harness.tick()
        assert await harness.recover() == {second.id}
