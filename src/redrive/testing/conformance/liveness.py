"""Liveness: a worker that falls silent loses its leases, if whoever says so can know."""

from __future__ import annotations

from redrive.kernel.commit import Drain
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.store import Heartbeat
from redrive.kernel.task import Claimed, State
from redrive.testing.conformance.harness import DEAD_AFTER, JUDGEMENT, LEASE, Harness, failing

LONG = 600.0


class TestLiveness:
    async def _held_by(self, harness: Harness, worker: str) -> Claimed:
        await harness.enqueue()
        return await harness.claim_one(worker=worker, lease=LONG)

    async def test_a_silent_worker_loses_its_leases(self, harness: Harness) -> None:
        await harness.beat("dead")
        await harness.beat("judge")
        held = [await self._held_by(harness, "dead") for _ in range(2)]
        other = await self._held_by(harness, "judge")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"dead": 2}
        assert await harness.recover() == {task.id for task in held}
        assert [await harness.state(task.id) for task in (*held, other)] == [State.QUEUED, State.QUEUED, State.RUNNING]
        assert not await harness.settle(held[0], Completed()), "its token is worth nothing any more"
        assert await harness.store.judge("judge", JUDGEMENT) == {}, "once"
        await harness.check_totals()

    async def test_it_is_known_when_somebody_is_to_be_judged(self, harness: Harness) -> None:
        await harness.beat("dead")
        assert (await harness.beat("judge")).silent_in is None
        await harness.let_beat(12.5, "judge")
        soon = (await harness.beat("judge")).silent_in
        assert soon is not None and 2 < soon < 2.6
        await harness.advance(3)
        now = (await harness.beat("judge")).silent_in
        assert now is not None and now < 0
        await harness.store.judge("judge", JUDGEMENT)
        assert (await harness.beat("judge")).silent_in is None

    async def test_one_that_beats_keeps_its_leases(self, harness: Harness) -> None:
        await harness.beat("w1")
        held = await self._held_by(harness, "w1")
        await harness.let_beat(4 * DEAD_AFTER, "w1", "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {}
        assert await harness.settle(held, Completed())

    async def test_a_judge_must_have_beaten_without_a_gap(self, harness: Harness) -> None:
        await harness.beat("dead")
        await harness.beat("judge")
        await self._held_by(harness, "dead")
        await harness.let_beat(12, "judge")
        await harness.advance(9)
        assert await harness.store.judge("judge", JUDGEMENT) == {}, "it was silent itself"
        await harness.beat("judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {}, "nor does it know who was cut off with it"
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"dead": 1}
        assert await harness.store.judge("stranger", JUDGEMENT) == {}

    async def test_when_most_are_silent_leases_decide(self, harness: Harness) -> None:
        for name in ("a", "b", "judge"):
            await harness.beat(name)
        held = [await self._held_by(harness, name) for name in ("a", "b")]
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {}
        await harness.beat("b")
        assert await harness.store.judge("judge", JUDGEMENT) == {"a": 1}
        assert await harness.recover() == {held[0].id}
        # Of two, one may say that the other is dead.
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"b": 1}

    async def test_those_who_are_long_gone_are_not_most(self, harness: Harness) -> None:
        for name in ("a", "b", "c", "judge"):
            await harness.beat(name)
        await harness.let_beat(DEAD_AFTER + LEASE + 1, "judge")
        await harness.beat("new")
        held = await self._held_by(harness, "new")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"new": 1}
        assert await harness.recover() == {held.id}

    async def test_a_renewal_in_between_keeps_the_lease(self, harness: Harness) -> None:
        await harness.beat("slow")
        await harness.beat("judge")
        held = await self._held_by(harness, "slow")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"slow": 1}
        assert await harness.renew(held, LONG)
        assert await harness.recover() == set()
        assert await harness.settle(held, Completed())

    async def test_one_that_comes_back_hears_that_it_was_declared_dead(self, harness: Harness) -> None:
        await harness.beat("paused")
        await harness.beat("judge")
        held = await self._held_by(harness, "paused")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        await harness.store.judge("judge", JUDGEMENT)
        await harness.recover()
        assert (await harness.beat("paused")).declared
        assert not await harness.renew(held)
        assert not (await harness.beat("paused")).declared
        # It counts again, and can be lost again.
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"paused": 0}

    async def test_who_only_ticks_is_left_to_its_leases(self, harness: Harness) -> None:
        """A worker of the version before, or an executor: its silence may be that of its loop."""
        await harness.tick("old")
        await harness.beat("judge")
        await self._held_by(harness, "old")
        await harness.let_beat(4 * DEAD_AFTER, "judge")
        assert (await harness.beat("judge")).silent_in is None
        assert await harness.store.judge("judge", JUDGEMENT) == {}

    async def test_an_old_worker_under_a_name_that_used_to_beat(self, harness: Harness) -> None:
        await harness.beat("w1", pid=7)
        await harness.advance(5)
        for _ in range(2):
            await harness.store.tick(Heartbeat("w1", "host", 8, ("default",), 4, 0, "0", {}))
        await harness.beat("judge")
        await harness.let_beat(DEAD_AFTER + 5, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {}

    async def test_one_that_said_goodbye_is_not_missed(self, harness: Harness) -> None:
        for name in ("a", "b", "judge"):
            await harness.beat(name)
        for name in ("a", "b"):
            await harness.tick(name, stopping=True)
        await harness.beat("new")
        await self._held_by(harness, "new")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await harness.store.judge("judge", JUDGEMENT) == {"new": 1}

    async def test_what_another_process_had_under_this_name_is_freed(self, harness: Harness) -> None:
        await harness.beat("w1", pid=1)
        held = await self._held_by(harness, "w1")
        await harness.advance(3)
        first = await harness.beat("w1", pid=2)
        assert first.silent_in is not None and 14 < first.silent_in <= 15
        own = await self._held_by(harness, "w1")
        for n in range(1, 5):
            assert await harness.store.judge("w1", JUDGEMENT) == {}
            await harness.advance(4)
            await harness.beat("w1", pid=2, age=4.0 * n)
        assert await harness.store.judge("w1", JUDGEMENT) == {"w1": 1}
        assert await harness.recover() == {held.id}
        assert await harness.settle(own, Completed())

    async def test_it_is_freed_by_one_that_began_to_beat_late_too(self, harness: Harness) -> None:
        await harness.beat("w1", pid=1)
        held = await self._held_by(harness, "w1")
        await harness.advance(20)
        await harness.beat("w1", pid=2, age=10.0)
        age = 10.0
        for _ in range(5):
            await harness.advance(4)
            age += 4
            heard = await harness.beat("w1", pid=2, age=age)
            assert heard.silent_in is not None
            if heard.silent_in <= 0:
                break
        assert age == 26.0, "as soon as it has beaten for long enough"
        assert await harness.store.judge("w1", JUDGEMENT) == {"w1": 1}
        assert await harness.recover() == {held.id}

    async def test_two_processes_of_one_name_do_not_bury_each_other(self, harness: Harness) -> None:
        held = []
        for _ in range(8):
            for pid in (1, 2):
                await harness.beat("twin", pid=pid)
                held.append(await self._held_by(harness, "twin"))
            assert await harness.store.judge("twin", JUDGEMENT) == {}
            await harness.advance(4)
        assert await harness.recover() == set()

    async def test_a_process_that_was_seen_to_end_is_buried_at_once(self, harness: Harness) -> None:
        await harness.beat("child", pid=1)
        held = await self._held_by(harness, "child")
        assert await harness.store.bury("child", "host", 2) == 0, "that is another process"
        assert await harness.recover() == set()
        assert await harness.store.bury("child", "host", 1) == 1
        assert await harness.recover() == {held.id}
        assert await harness.store.bury("nobody", "host", 1) == 0
        assert await harness.settle(await harness.claim_one(), Completed())

    async def _die(self, harness: Harness, task: Claimed) -> None:
        """Lets the worker of a task die, and recovers it; a retry that waits is promoted."""
        await harness.beat("dead")
        await harness.advance(LONG + 1)
        await harness.beat("dead")
        assert task.id in await harness.recover()
        await harness.advance(60)
        await harness.tick()

    async def test_a_lost_worker_uses_up_no_attempt(self, harness: Harness) -> None:
        await harness.enqueue(max_attempts=1)
        for attempt in (1, 2):
            claimed = await harness.claim_one(worker="dead", lease=LONG)
            assert (claimed.attempt, claimed.max_attempts) == (attempt, attempt)
            await self._die(harness, claimed)
        assert await harness.store.deaths([claimed.id]) == {claimed.id: 2}
        claimed = await harness.claim_one(worker="dead", lease=LONG)
        assert await harness.settle(claimed, failing())
        assert (await harness.task(claimed.id)).state is State.FAILED, "its own failure does"
        await harness.check_totals()

    async def test_three_lost_workers_make_it_final(self, harness: Harness) -> None:
        await harness.enqueue(max_attempts=10)
        for _ in range(3):
            claimed = await harness.claim_one(worker="dead", lease=LONG)
            await self._die(harness, claimed)
        task = await harness.task(claimed.id)
        assert (task.state, task.error_reason, task.attempt_count) == (State.FAILED, "worker_lost", 3)
        assert await harness.operate(Event.REDRIVE, claimed.id)
        task = await harness.task(claimed.id)
        assert (task.attempt_count, task.max_attempts) == (0, 10), "an operator gives it all of them again"
        assert await harness.store.deaths([claimed.id]) == {}
        await harness.check_totals()

    async def test_what_was_not_begun_is_handed_back(self, harness: Harness) -> None:
        await harness.enqueue(max_attempts=10)
        for _ in range(2):
            claimed = await harness.claim_one(worker="dead", lease=LONG)
            await self._die(harness, claimed)
        claimed = await harness.claim_one(worker="dead", lease=LONG)
        await harness.store.set_apart([(claimed.id, claimed.token)], True)
        await self._die(harness, claimed)
        task = await harness.task(claimed.id)
        assert (task.state, task.attempt_count) == (State.QUEUED, 2)
        claimed = await harness.claim_one(worker="dead", lease=LONG)
        await harness.store.set_apart([(claimed.id, claimed.id)], True)  # under somebody else's token
        await self._die(harness, claimed)
        assert (await harness.task(claimed.id)).error_reason == "worker_lost"

    async def test_a_lease_of_one_that_never_beat_uses_up_an_attempt(self, harness: Harness) -> None:
        """Of an executor nobody knows whether it died."""
        await harness.enqueue(max_attempts=1)
        claimed = await harness.claim_one(worker="outside")
        await harness.advance(LEASE + 1)
        await harness.recover()
        assert (await harness.task(claimed.id)).error_reason == "lease_expired"
        assert await harness.state(claimed.id) is State.FAILED

    async def test_a_worker_hears_that_it_is_to_end(self, harness: Harness) -> None:
        assert not (await harness.beat("w1")).drain
        await harness.beat("w2")
        await harness.tick("old")
        asked = [Drain(name, "ann", "a new machine") for name in ("w1", "old", "nobody")]
        applied = await harness.control(*asked)
        assert applied.repeated == {"worker:old", "worker:nobody"}, "they do not hear of it"
        assert (await harness.control(Drain("w1", "bob"))).repeated == {"worker:w1"}
        assert (await harness.beat("w1")).drain
        assert not (await harness.beat("w2")).drain
        rows = {row.id: row for row in (await harness.store.overview()).workers}
        assert [(rows[name].drain_at is not None, rows[name].hears) for name in ("w1", "w2", "old")] == [
            (True, True),
            (False, True),
            (False, False),
        ]
        told = [(row.actor, row.action, row.reason, row.target) for row in await harness.audit()]
        assert told == [("ann", "WORKER_DRAIN", "a new machine", "worker:w1")]
        assert not (await harness.beat("w1", pid=2)).drain, "another process of this name was not meant"
