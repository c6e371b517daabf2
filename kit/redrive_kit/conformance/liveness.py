"""Liveness: a worker that falls silent loses its leases, if whoever says so can know."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from redrive.ids import new_id
from redrive.kernel.commit import Drain
from redrive.kernel.machine import MAX_CUT_OFFS, Event
from redrive.kernel.outcome import Completed, Outcome, Retry, Snooze
from redrive.kernel.ports.store import Dead, Gone, Heartbeat, Judgement, Process, Silent
from redrive.kernel.task import Claimed, State
from redrive_kit.conformance.harness import BEAT, DEAD_AFTER, JUDGEMENT, LEASE, RETRY_AT_ONCE, Harness, failing

LONG = 600.0
LONG_LEASES = Judgement(DEAD_AFTER, LONG)  # nobody of the fleet is forgotten while a test lasts


async def deaths(harness: Harness, ids: list[UUID]) -> dict[UUID, int]:
    """Those of these tasks that were aboard workers that were lost, and how many."""
    return {one.id: one.deaths for one in (await harness.store.statuses(ids)).values() if one.deaths}


async def end_gone(harness: Harness, worker: str, process: Process) -> int | None:
    """How many leases ended with a process that is gone; None where it had been declared dead, or is another."""
    ended = await harness.store.end_leases(Gone(worker, process))
    return ended[worker].tasks if worker in ended else None


async def judge(harness: Harness, worker: str, by: Judgement = JUDGEMENT) -> dict[str, int]:
    """Lets a worker judge; returns how many tasks each of the dead had."""
    return {name: dead.tasks for name, dead in (await harness.store.end_leases(Silent(worker, by))).items()}


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
        assert await judge(harness, "judge") == {"dead": 2}
        assert await harness.recover() == {task.id for task in held}
        assert [await harness.state(task.id) for task in (*held, other)] == [State.QUEUED, State.QUEUED, State.RUNNING]
        assert not await harness.settle(held[0], Completed()), "its token is worth nothing any more"
        assert await judge(harness, "judge") == {}, "once"
        await harness.check_totals()

    async def test_it_is_known_when_somebody_is_to_be_judged(self, harness: Harness) -> None:
        await harness.beat("dead")
        assert (await harness.beat("judge")).silent_in is None
        await harness.let_beat(12.5, "judge")
        soon = (await harness.beat("judge")).silent_in
        assert soon is not None and 0 < soon < 2.6
        await harness.advance(3)
        now = (await harness.beat("judge")).silent_in
        assert now is not None and now < 0
        await judge(harness, "judge")
        assert (await harness.beat("judge")).silent_in is None

    async def test_one_that_beats_keeps_its_leases(self, harness: Harness) -> None:
        await harness.beat("w1")
        held = await self._held_by(harness, "w1")
        await harness.let_beat(4 * DEAD_AFTER, "w1", "judge")
        assert await judge(harness, "judge") == {}
        assert await harness.settle(held, Completed())

    async def test_a_judge_must_have_beaten_without_a_gap(self, harness: Harness) -> None:
        await harness.beat("dead")
        await harness.beat("judge")
        await self._held_by(harness, "dead")
        await harness.let_beat(12, "judge")
        await harness.advance(9)
        assert await judge(harness, "judge") == {}, "it was silent itself"
        await harness.beat("judge")
        assert await judge(harness, "judge") == {}, "nor does it know who was cut off with it"
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {"dead": 1}
        assert await judge(harness, "stranger") == {}

    async def test_a_tick_does_not_hide_a_gap(self, harness: Harness) -> None:
        """Whoever comes back may tick before it beats."""
        for name in ("a", "b", "c", "gone"):
            await harness.beat(name)
        await harness.let_beat(20, "a", "b", "c", "gone")
        await harness.let_beat(20, "a", "b")
        await harness.tick("c")
        await harness.beat("c")
        assert await judge(harness, "c") == {}, "it was away itself"
        assert await judge(harness, "a") == {"gone": 0}

    async def test_when_most_are_silent_nobody_is_judged_for_a_minute(self, harness: Harness) -> None:
        """It may be the network. Then all of them are, and no task is held responsible."""
        await harness.limit("A", concurrency=3)
        for name in ("a", "b", "c", "judge"):
            await harness.beat(name)
        held = [await self._held_by(harness, name) for name in ("a", "b")]
        await harness.let_beat(20, "c", "judge")
        held.append(await self._held_by(harness, "c"))
        waits = await harness.enqueue(max_attempts=1)
        await harness.let_beat(28, "judge")
        assert await judge(harness, "judge", LONG_LEASES) == {}
        heard = await harness.beat("judge", judgement=LONG_LEASES)
        assert heard.silent_in is None, "not before the next beat"
        await harness.let_beat(8, "judge")
        heard = await harness.beat("judge", judgement=LONG_LEASES)
        assert heard.silent_in is not None and heard.silent_in <= 4, "it is known when"
        await harness.advance(4)
        await harness.beat("judge", judgement=LONG_LEASES)
        assert not await harness.claim(), "the dead have all places of this kind"
        assert await harness.store.end_leases(Silent("judge", LONG_LEASES)) == {
            name: Dead(1, True) for name in ("a", "b")
        }
        await harness.let_beat(16, "judge")
        assert await judge(harness, "judge", LONG_LEASES) == {}, "that one is not the only one, though it is by now"
        await harness.let_beat(4, "judge")
        assert await harness.store.end_leases(Silent("judge", LONG_LEASES)) == {"c": Dead(1, True)}
        assert await harness.recover() == {task.id for task in held}
        assert await deaths(harness, [task.id for task in held]) == {}
        for task in held:
            row = await harness.task(task.id)
            assert (row.state, row.attempt_count, row.max_attempts) == (State.QUEUED, 0, 3), "as if it had been stopped"
            assert not await harness.settle(task, Completed())
        assert {claimed.id for claimed in await harness.claim(4)} <= {waits, *(task.id for task in held)}
        await harness.check_totals()

    async def _cut_off(self, harness: Harness, count: int, task: UUID) -> None:
        """Lets a task run on one of two workers that fall silent for ever, again and again, and recovers it each time:
        whoever judges has no queue of theirs. Begins the next attempt when its pause is over."""
        for _ in range(count):
            lost = [str(new_id()) for _ in range(2)]
            for name in ("judge", *lost):
                await harness.beat(name)
            assert {claimed.id for claimed in await harness.claim(2, worker=lost[0], lease=LONG)} == {task}
            await harness.let_beat(64, "judge")
            found = await harness.store.end_leases(Silent("judge", LONG_LEASES))
            assert found == {lost[0]: Dead(1, True), lost[1]: Dead(0, True)}
            assert await harness.recover() == {task}
            await harness.let_beat(60, "judge")
            await harness.tick()

    async def test_a_fleet_that_falls_silent_again_and_again_counts(self, harness: Harness) -> None:
        """Else tasks that kill whatever runs them would do so for ever. Nothing of it is theirs for the first times."""
        await harness.beat("judge")
        task = await harness.enqueue(max_attempts=1)
        await self._cut_off(harness, MAX_CUT_OFFS, task)
        row = await harness.task(task)
        assert (row.state, row.attempt_count, row.max_attempts) == (State.QUEUED, 0, 1)
        assert await deaths(harness, [task]) == {}
        for died in (1, 2):
            await self._cut_off(harness, 1, task)
            assert await deaths(harness, [task]) == {task: died}
        await self._cut_off(harness, 1, task)
        row = await harness.task(task)
        assert (row.state, row.error_reason) == (State.FAILED, "worker_lost")
        assert f"{MAX_CUT_OFFS} times" in (row.error_message or ""), "it says what came before"
        assert await harness.operate(Event.REDRIVE, task)
        await self._cut_off(harness, MAX_CUT_OFFS, task)
        assert await deaths(harness, [task]) == {}, "an operator's retry begins anew"
        await harness.check_totals()

    async def test_cut_offs_count_in_a_row(self, harness: Harness) -> None:
        await harness.beat("judge")
        task = await harness.enqueue(max_attempts=10)
        for outcome in (Snooze(0), RETRY_AT_ONCE):
            await self._cut_off(harness, MAX_CUT_OFFS, task)
            assert await harness.settle(await harness.claim_one(), outcome)
        assert await deaths(harness, [task]) == {}
        await harness.check_totals()

    async def test_of_two_one_may_say_that_the_other_is_dead(self, harness: Harness) -> None:
        for name in ("a", "b", "judge"):
            await harness.beat(name)
        held = [await self._held_by(harness, name) for name in ("a", "b")]
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {}
        await harness.beat("b")
        assert await judge(harness, "judge") == {}, "a might come back as well"
        await harness.let_beat(DEAD_AFTER + 1, "b", "judge")
        assert await harness.store.end_leases(Silent("judge", JUDGEMENT)) == {"a": Dead(1, False)}
        assert await harness.recover() == {held[0].id}
        assert await deaths(harness, [held[0].id]) == {held[0].id: 1}
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {"b": 1}

    async def test_a_newcomer_judges_when_it_has_beaten_for_a_minute(self, harness: Harness) -> None:
        for name in ("a", "b", "c"):
            await harness.beat(name)
            await self._held_by(harness, name)
        await harness.advance(120)
        await harness.let_beat(44, "new")
        assert await judge(harness, "new", LONG_LEASES) == {}
        await harness.let_beat(20, "new")
        assert await judge(harness, "new", LONG_LEASES) == {"a": 1, "b": 1, "c": 1}

    async def test_one_that_dies_again_and_again_does_not_put_off_the_others(self, harness: Harness) -> None:
        for name in ("dead", "judge"):
            await harness.beat(name)
        held = await self._held_by(harness, "dead")
        for nth in range(16):
            await harness.beat(f"crashed-{nth}")
            await harness.let_beat(4, "judge")
            if await judge(harness, "judge", LONG_LEASES):
                break
        assert await harness.recover() == {held.id}
        assert await deaths(harness, [held.id]) == {}

    async def test_the_first_of_many_to_be_missed_is_not_judged(self, harness: Harness) -> None:
        """All are cut off at once, and their last beats were not at one time."""
        names = [f"w{n}" for n in range(4)]
        for name in names:
            await harness.beat(name)
            await harness.advance(1)
        await self._held_by(harness, "w0")
        await harness.let_beat(20, "judge", *names)
        for name in names:
            await harness.beat(name)
            await harness.advance(1)
            await harness.beat("judge")
        for _ in range(40):  # for a second there is but one that has been silent for long enough
            await harness.advance(1)
            await harness.beat("judge")
            assert await judge(harness, "judge", LONG_LEASES) == {}
        await harness.let_beat(24, "judge")
        assert (await judge(harness, "judge", LONG_LEASES)).keys() == set(names)

    async def test_those_who_come_back_one_after_the_other_are_not_judged(self, harness: Harness) -> None:
        """Half of them are heard of again; the other half would be a moment later."""
        names = [f"w{n}" for n in range(9)]
        for name in (*names, "judge"):
            await harness.beat(name)
        await self._held_by(harness, "w8")
        await harness.let_beat(48, "judge")
        for name in names[:8]:
            await harness.beat(name)
            assert await judge(harness, "judge", LONG_LEASES) == {}
        # Who is heard of no more is dead as soon as the others are known to be well.
        await harness.let_beat(DEAD_AFTER + 1, "judge", *names[:8])
        assert await judge(harness, "judge", LONG_LEASES) == {"w8": 1}

    async def test_a_lease_that_was_kept_after_all_counts_when_its_worker_dies(self, harness: Harness) -> None:
        for name in ("a", "b", "judge"):
            await harness.beat(name)
        held = await self._held_by(harness, "a")
        await harness.let_beat(64, "judge")
        assert await judge(harness, "judge", LONG_LEASES) == {"a": 1, "b": 0}
        assert (await harness.beat("a")).declared
        assert await harness.renew(held, LONG)
        assert await end_gone(harness, "a", Process("host", 1)) == 1
        assert await harness.recover() == {held.id}
        assert await deaths(harness, [held.id]) == {held.id: 1}

    async def test_those_who_are_long_gone_are_not_most(self, harness: Harness) -> None:
        for name in ("a", "b", "c", "judge"):
            await harness.beat(name)
        await harness.let_beat(DEAD_AFTER + LEASE + 1, "judge")
        await harness.beat("new")
        held = await self._held_by(harness, "new")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {"new": 1}
        assert await harness.recover() == {held.id}

    async def test_a_renewal_in_between_keeps_the_lease(self, harness: Harness) -> None:
        await harness.beat("slow")
        await harness.beat("judge")
        held = await self._held_by(harness, "slow")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {"slow": 1}
        assert await harness.renew(held, LONG)
        assert await harness.recover() == set()
        assert await harness.settle(held, Completed())

    async def test_one_that_comes_back_hears_that_it_was_declared_dead(self, harness: Harness) -> None:
        await harness.beat("paused")
        await harness.beat("judge")
        held = await self._held_by(harness, "paused")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        await judge(harness, "judge")
        await harness.recover()
        assert (await harness.beat("paused")).declared
        assert not await harness.renew(held)
        assert not (await harness.beat("paused")).declared
        # It counts again, and can be lost again.
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {"paused": 0}

    async def test_who_only_ticks_is_left_to_its_leases(self, harness: Harness) -> None:
        """A worker of the version before, or an executor: its silence may be that of its loop."""
        await harness.tick("old")
        await harness.beat("judge")
        await self._held_by(harness, "old")
        await harness.let_beat(4 * DEAD_AFTER, "judge")
        assert (await harness.beat("judge")).silent_in is None
        assert await judge(harness, "judge") == {}

    async def test_an_old_worker_under_a_name_that_used_to_beat(self, harness: Harness) -> None:
        await harness.beat("w1", pid=7)
        await harness.advance(5)
        for _ in range(2):
            await harness.store.tick(Heartbeat("w1", "host", 8, ("default",), 4, 0, "0", {}))
        await harness.beat("judge")
        await harness.let_beat(DEAD_AFTER + 5, "judge")
        assert await judge(harness, "judge") == {}

    async def test_one_that_said_goodbye_is_not_missed(self, harness: Harness) -> None:
        for name in ("a", "b", "judge"):
            await harness.beat(name)
        for name in ("a", "b"):
            await harness.tick(name, stopping=True)
        await harness.beat("new")
        await self._held_by(harness, "new")
        await harness.let_beat(DEAD_AFTER + 1, "judge")
        assert await judge(harness, "judge") == {"new": 1}

    async def test_what_another_process_had_under_this_name_is_freed(self, harness: Harness) -> None:
        await harness.beat("w1", pid=1)
        held = await self._held_by(harness, "w1")
        await harness.advance(3)
        first = await harness.beat("w1", pid=2)
        assert first.silent_in is not None and 14 < first.silent_in <= 15
        own = await self._held_by(harness, "w1")
        for n in range(1, 5):
            assert await judge(harness, "w1") == {}
            await harness.advance(4)
            await harness.beat("w1", pid=2, age=4.0 * n)
        assert await judge(harness, "w1") == {"w1": 1}
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
        assert await judge(harness, "w1") == {"w1": 1}
        assert await harness.recover() == {held.id}

    async def test_two_processes_of_one_name_do_not_bury_each_other(self, harness: Harness) -> None:
        held = []
        for _ in range(8):
            for pid in (1, 2):
                await harness.beat("twin", pid=pid)
                held.append(await self._held_by(harness, "twin"))
            assert await judge(harness, "twin") == {}
            await harness.advance(4)
        assert await harness.recover() == set()

    async def test_a_process_that_was_seen_to_end_is_buried_at_once(self, harness: Harness) -> None:
        await harness.beat("child", pid=1)
        held = await self._held_by(harness, "child")
        assert await end_gone(harness, "child", Process("host", 2)) is None, "that is another process"
        assert await harness.recover() == set()
        assert await end_gone(harness, "child", Process("host", 1)) == 1
        assert await harness.recover() == {held.id}
        assert await end_gone(harness, "nobody", Process("host", 1)) is None
        assert await harness.settle(await harness.claim_one(), Completed())

    async def test_workers_of_one_machine_know_each_others_processes(self, harness: Harness) -> None:
        await harness.beat("stopped", pid=5, birth=50)
        await harness.tick("stopped", stopping=True)
        await harness.beat("old", pid=6)
        await harness.beat("cloned", pid=7, birth=70, host="another")
        await harness.beat("contained", pid=7, birth=70, machine="boot, another pid namespace")
        await harness.beat("dead", pid=8, birth=80)
        held = await self._held_by(harness, "dead")
        await harness.advance(3)
        heard = (await harness.beat("w1", pid=9, birth=90)).neighbours
        assert {name: (one.process, one.every) for name, one in heard.items()} == {
            "dead": (Process("host", 8, "boot", 80), BEAT)
        }
        assert heard["dead"].silence >= 3
        process = heard["dead"].process
        assert (await harness.beat("old", pid=6)).neighbours == {}, "it does not know where it is"
        later = Process("host", 8, "boot", 81)
        assert await end_gone(harness, "dead", later) is None, "the pid is another's by now"
        assert await harness.recover() == set()
        assert await end_gone(harness, "dead", replace(process, host="another")) is None
        assert await end_gone(harness, "dead", replace(process, machine="boot, another pid namespace")) is None
        assert await end_gone(harness, "dead", process) == 1
        assert await end_gone(harness, "dead", process) is None, "once"
        workers = {one.id: one.dead for one in (await harness.store.overview()).workers}
        assert workers["dead"] and not any(dead for name, dead in workers.items() if name != "dead"), (
            "everybody sees it"
        )
        assert await harness.recover() == {held.id}
        assert await deaths(harness, [held.id]) == {held.id: 1}, "it is certain, so it counts"
        assert (await harness.beat("w1", pid=9, birth=90)).neighbours == {}

    async def test_a_process_of_the_same_name_host_and_pid_is_another_by_its_birth(self, harness: Harness) -> None:
        """As in a container that was started anew."""
        await harness.beat("w1", birth=10)
        held = await self._held_by(harness, "w1")
        await harness.advance(3)
        for n in range(5):
            assert await harness.recover() == set()
            await harness.beat("w1", birth=20, age=4.0 * n)
            await harness.advance(4)
        await harness.beat("w1", birth=20, age=20)
        assert await judge(harness, "w1") == {"w1": 1}
        assert await harness.recover() == {held.id}

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
        assert await deaths(harness, [claimed.id]) == {claimed.id: 2}
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
        assert await deaths(harness, [claimed.id]) == {}
        await harness.check_totals()

    @pytest.mark.parametrize("outcome", [Snooze(0), RETRY_AT_ONCE])
    async def test_deaths_count_in_a_row(self, harness: Harness, outcome: Outcome) -> None:
        """What lands in between says that its worker lived; progress does not, which a poison task could report."""
        await harness.enqueue(max_attempts=10)
        for used in (0, 1):
            for _ in range(2):
                await self._die(harness, await harness.claim_one(worker="dead", lease=LONG))
            claimed = await harness.claim_one()
            assert await deaths(harness, [claimed.id]) == {claimed.id: 2}
            assert await harness.settle(claimed, outcome)
            task = await harness.task(claimed.id)
            retried = used + 1 if isinstance(outcome, Retry) else 0
            assert (task.attempt_count, task.max_attempts) == (retried, 10), "what died with its workers is given back"
            assert await deaths(harness, [claimed.id]) == {}
        for _ in range(3):
            claimed = await harness.claim_one(worker="dead", lease=LONG)
            await harness.store.renew([(claimed.id, claimed.token)], LONG, {claimed.id: '{"percent": 50}'})
            await self._die(harness, claimed)
        assert (await harness.task(claimed.id)).error_reason == "worker_lost"
        await harness.check_totals()

    async def test_what_was_not_begun_is_handed_back(self, harness: Harness) -> None:
        await harness.enqueue(max_attempts=10)
        for _ in range(2):
            claimed = await harness.claim_one(worker="dead", lease=LONG)
            await self._die(harness, claimed)
        claimed = await harness.claim_one(worker="dead", lease=LONG)
        await harness.store.mark_waiting([(claimed.id, claimed.token)], True)
        await self._die(harness, claimed)
        task = await harness.task(claimed.id)
        assert (task.state, task.attempt_count) == (State.QUEUED, 2)
        claimed = await harness.claim_one(worker="dead", lease=LONG)
        await harness.store.mark_waiting([(claimed.id, claimed.id)], True)  # under somebody else's token
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
