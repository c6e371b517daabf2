"""The state machine: every row of the table, and every outcome's way through it."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from redrive.errors import InvalidInput, PayloadInvalid
from redrive.kernel.backoff import Backoff
from redrive.kernel.failure import failure
from redrive.kernel.machine import (
    MAX_CUT_OFFS,
    TABLE,
    Attempts,
    DeadReason,
    Event,
    ExpiredLease,
    Lease,
    Meets,
    Policy,
    lands,
    settle,
)
from redrive.kernel.outcome import (
    Cancel,
    Completed,
    Expired,
    Fail,
    Failed,
    HandedBack,
    Outcome,
    Released,
    Retry,
    Snooze,
)
from redrive.kernel.task import HISTORY, LIVE, State

FIRST = Lease(uuid4(), uuid4(), attempt=1, max_attempts=3, worker_id="w", execution_ms=4.0)
LAST = Lease(uuid4(), uuid4(), attempt=3, max_attempts=3, worker_id="w")
POLICY = Policy(backoff=Backoff(10.0, 10.0))
BROKEN = failure("TASK_EXECUTION_FAILED", "unknown_exception", "boom")
FATAL = failure("TASK_PAYLOAD_INVALID", "bad", "no")
BUSY = failure("SHOP_BUSY", "busy", "not now", retryable=True)  # the application's own word

Q, D, R, P, F, C, X = (
    State.QUEUED,
    State.DELAYED,
    State.RUNNING,
    State.PAUSED,
    State.FAILED,
    State.COMPLETED,
    State.CANCELLED,
)
# The table, written a second time by hand: a change of the machine has to be meant.
EXPECTED = {
    Event.DUE: ({D}, {Q}, False, Attempts.KEEP),
    Event.CLAIM: ({Q}, {R}, False, Attempts.ADD),
    Event.COMPLETE: ({R}, {C}, True, Attempts.KEEP),
    Event.RETRY: ({R}, {D, Q}, True, Attempts.KEEP),
    Event.SNOOZE: ({R}, {D, Q}, True, Attempts.GIVE_BACK),
    Event.RELEASE: ({R}, {Q}, True, Attempts.GIVE_BACK),
    Event.HAND_BACK: ({R}, {D}, True, Attempts.GIVE_BACK),
    Event.FAIL: ({R}, {F}, True, Attempts.KEEP),
    Event.ABORT: ({R}, {X}, True, Attempts.KEEP),
    Event.EXPIRE: ({R}, {Q, D, F}, True, Attempts.KEEP),
    Event.CANCEL: ({Q, D, P, F}, {X}, False, Attempts.KEEP),
    Event.PAUSE: ({Q, D}, {P}, False, Attempts.KEEP),
    Event.RESUME: ({P}, {Q, D}, False, Attempts.KEEP),
    Event.REDRIVE: ({F, X}, {Q}, False, Attempts.RESET),
    Event.REJECT: ({Q, D, P, R}, {F}, False, Attempts.KEEP),
    Event.POSTPONE: ({Q}, {D}, False, Attempts.KEEP),
}

# Where a task lands whose cancellation was requested while it ran.
CANCELLED_MEANWHILE = {
    Event.COMPLETE: C,
    Event.RETRY: X,
    Event.SNOOZE: X,
    Event.RELEASE: X,
    Event.HAND_BACK: R,
    Event.FAIL: F,
    Event.ABORT: X,
    Event.EXPIRE: X,
}

SETTLED: list[tuple[Lease, Outcome, Event, State, DeadReason | None]] = [
    (FIRST, Completed("1"), Event.COMPLETE, C, None),
    (FIRST, Snooze(5), Event.SNOOZE, D, None),
    (FIRST, Snooze(0), Event.SNOOZE, Q, None),
    (FIRST, Released(), Event.RELEASE, Q, None),
    (FIRST, HandedBack(), Event.HAND_BACK, D, None),
    (FIRST, Cancel(), Event.ABORT, X, None),
    (FIRST, Expired(), Event.EXPIRE, Q, None),
    (LAST, Expired(), Event.EXPIRE, F, DeadReason.MAX_ATTEMPTS),
    (FIRST, Retry(), Event.RETRY, D, None),
    (LAST, Retry(after=0), Event.FAIL, F, DeadReason.MAX_ATTEMPTS),
    (FIRST, Fail("TASK_ENTITY_NOT_FOUND"), Event.FAIL, F, DeadReason.NON_RETRYABLE),
    (FIRST, Fail("TASK_EXECUTION_FAILED"), Event.RETRY, D, None),
    (FIRST, Failed(BROKEN), Event.RETRY, D, None),
    (LAST, Failed(BROKEN), Event.FAIL, F, DeadReason.MAX_ATTEMPTS),
    (FIRST, Failed(FATAL), Event.FAIL, F, DeadReason.NON_RETRYABLE),
    (FIRST, Failed(BUSY), Event.RETRY, D, None),
    (LAST, Failed(BUSY), Event.FAIL, F, DeadReason.MAX_ATTEMPTS),
]


def test_the_table() -> None:
    found = {event: (set(rule.sources), set(rule.targets), rule.fenced, rule.attempts) for event, rule in TABLE.items()}
    assert found == EXPECTED and set(TABLE) == set(Event)
    for event, rule in TABLE.items():
        # Whoever takes a task out of running must hold its token; nobody else has one.
        assert rule.fenced == (rule.sources == (R,)), event
    reached = {target for rule in TABLE.values() for target in rule.targets}
    assert reached == set(State)
    assert set(State) == {*LIVE, *HISTORY} and set(LIVE).isdisjoint(HISTORY)


@pytest.mark.parametrize("event", Event)
def test_where_a_move_lands(event: Event) -> None:
    for to in TABLE[event].targets:
        assert lands(event, to, ()) is to
        assert lands(event, to, [Meets.CANCEL_REQUESTED]) is CANCELLED_MEANWHILE.get(event, to)
        assert lands(event, to, [Meets.EARLY]) is (D if event is Event.RESUME else to)
        assert lands(event, to, list(Meets)) in {lands(event, to, [one]) for one in Meets}
    running = {event for event, rule in TABLE.items() if rule.fenced}
    assert running == set(CANCELLED_MEANWHILE)
    assert [event for event, rule in TABLE.items() if rule.quiet] == [Event.HAND_BACK, Event.POSTPONE]


@pytest.mark.parametrize("lease, outcome, event, to, dead", SETTLED)
def test_what_follows_from_an_outcome(
    lease: Lease, outcome: Outcome, event: Event, to: State, dead: DeadReason | None
) -> None:
    move = settle(lease, outcome, POLICY, 0.5)
    assert (move.event, move.to, move.dead) == (event, to, dead)
    assert to in move.rule.targets
    assert (move.task_id, move.token, move.worker_id, move.execution_ms) == (
        lease.id,
        lease.token,
        lease.worker_id,
        lease.execution_ms,
    )
    assert move.expired == isinstance(outcome, Expired)
    assert (move.delay > 0) == (to is D)
    assert (move.failure is not None) == (event in (Event.RETRY, Event.FAIL, Event.EXPIRE))


def test_delays() -> None:
    assert settle(FIRST, Failed(BROKEN), POLICY, 0.0).delay == 5.0
    assert settle(FIRST, Retry(after=77), POLICY, 0.0).delay == 77
    told = failure("TASK_EXECUTION_FAILED", "http_429", "slow down")
    told = type(told)(**{**{f: getattr(told, f) for f in told.__slots__}, "retry_after": 33.0})
    assert settle(FIRST, Failed(told), POLICY, 0.0).delay == 33.0
    assert settle(FIRST, Snooze(12), POLICY, 0.0).delay == 12


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), True, "5", None, 10**10])
def test_a_snooze_needs_a_sensible_time(seconds: object) -> None:
    with pytest.raises(InvalidInput):
        Snooze(seconds)  # type: ignore[arg-type]
    if seconds is not None:
        with pytest.raises(InvalidInput):
            Retry(after=seconds)  # type: ignore[arg-type]


def test_a_snooze_needs_a_state_that_is_json() -> None:
    with pytest.raises(PayloadInvalid, match="state="):
        settle(FIRST, Snooze(1, state=object()), POLICY, 0)
    with pytest.raises(InvalidInput):
        Fail("not a code")


class TestBackoff:
    def test_doubles_up_to_its_maximum(self) -> None:
        backoff = Backoff(2.0, 60.0)
        assert [backoff.delay(n, 1.0) for n in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]

    def test_half_is_fixed_and_half_is_spread(self) -> None:
        backoff = Backoff(2.0, 60.0)
        assert (backoff.delay(3, 0.0), backoff.delay(3, 0.5), backoff.delay(3, 1.0)) == (4.0, 6.0, 8.0)

    def test_absurd_attempts_do_not_overflow(self) -> None:
        assert Backoff(2.0, 60.0).delay(10**9, 0.0) == 30.0
        assert Backoff(2.0, 60.0).delay(0, 1.0) == Backoff(2.0, 60.0).delay(1, 1.0)


def test_expired_leases_are_one_cause_for_each_kind() -> None:
    def cause(kind: str, attempt: int, limit: float | None) -> str:
        lease = ExpiredLease(uuid4(), uuid4(), attempt=attempt, max_attempts=3, worker_id="w", kind=kind)
        found = settle(lease, Expired(limit), POLICY, 0).failure
        assert found is not None
        return found.fingerprint

    assert len({cause("MAIL", 1, None), cause("MAIL", 3, None), cause("MAIL", 2, 60.0)}) == 1
    assert cause("MAIL", 1, None) != cause("CHARGE", 1, None)


class TestLostWorkers:
    def lease(self, deaths: int | None, *, unbegun: bool = False, cut_offs: int | None = None) -> ExpiredLease:
        return ExpiredLease(FIRST.id, FIRST.token, 1, 1, "w1", deaths=deaths, unbegun=unbegun, cut_offs=cut_offs)

    def test_the_first_comes_back_at_once_and_later_ones_after_a_while(self) -> None:
        first, second = (settle(self.lease(n), Expired(), POLICY, 1.0) for n in (0, 1))
        assert (first.to, first.delay, first.death) == (State.QUEUED, 0.0, True)
        assert (second.to, second.delay > 0, second.death) == (State.DELAYED, True, True)

    def test_too_many_make_it_final(self) -> None:
        last = settle(self.lease(2), Expired(), POLICY, 1.0)
        assert last.failure is not None
        assert (last.to, last.failure.reason, last.dead) == (State.FAILED, "worker_lost", "non_retryable")

    def test_of_one_that_never_beat_nobody_knows(self) -> None:
        last = settle(self.lease(None), Expired(), POLICY, 1.0)
        assert (last.to, last.death) == (State.FAILED, False)

    def test_one_that_was_not_begun_is_handed_back(self) -> None:
        back = settle(self.lease(2, unbegun=True), Expired(), POLICY, 1.0)
        assert (back.event, back.to, back.death, back.expired) == (Event.RELEASE, State.QUEUED, False, True)
        assert not back.cut_off

    @pytest.mark.parametrize(("cut_offs", "max_deaths", "counts"), [
        (0, 3, False), (MAX_CUT_OFFS - 1, 3, False), (MAX_CUT_OFFS, 3, True), (MAX_CUT_OFFS, None, True), (0, 1, True),
    ])  # fmt: skip
    def test_being_cut_off_counts_after_some_times(self, cut_offs: int, max_deaths: int | None, counts: bool) -> None:
        """At once where the first lost worker is the last: such a task must not be begun twice."""
        policy = replace(POLICY, max_deaths=max_deaths)
        moved = settle(self.lease(0, cut_offs=cut_offs), Expired(), policy, 1.0)
        assert (moved.death, moved.cut_off) == (counts, not counts)
        assert moved.event is (Event.EXPIRE if counts else Event.RELEASE)
        assert (moved.to is State.FAILED) == (max_deaths == 1)
