"""The state machine: one table, and the pure functions that turn an outcome into a transition.

``docs/state-machine.md`` is generated from ``TABLE`` and ``INSTEAD``. Stores apply transitions; they never decide one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from redrive.errors import ErrorCode
from redrive.kernel.backoff import Backoff
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
from redrive.kernel.payload import encode
from redrive.kernel.task import State, check_seconds

if TYPE_CHECKING:
    from redrive.kernel.failure import Failure, Origin


class Event(StrEnum):
    """What can move a task that exists."""

    DUE = "due"
    CLAIM = "claim"
    COMPLETE = "complete"
    RETRY = "retry"
    SNOOZE = "snooze"
    RELEASE = "release"
    HAND_BACK = "hand_back"
    FAIL = "fail"
    CANCEL = "cancel"
    ABORT = "abort"
    EXPIRE = "expire"
    PAUSE = "pause"
    RESUME = "resume"
    REDRIVE = "redrive"
    REJECT = "reject"
    POSTPONE = "postpone"


class Attempts(StrEnum):
    """What an event does to ``attempt_count``."""

    KEEP = "keep"
    ADD = "+1"
    GIVE_BACK = "-1"
    RESET = "reset"


class DeadReason(StrEnum):
    NON_RETRYABLE = "non_retryable"
    MAX_ATTEMPTS = "max_attempts_exceeded"


@dataclass(slots=True, frozen=True)
class Rule:
    """From where, to where, and under which conditions an event moves a task."""

    sources: tuple[State, ...]
    targets: tuple[State, ...]
    fenced: bool
    attempts: Attempts
    why: str
    quiet: bool = False  # no feature is told of it, so that also a process that does not know the task's may do it


_S = State
TABLE: dict[Event, Rule] = {
    Event.DUE: Rule(
        (_S.DELAYED,), (_S.QUEUED,), False, Attempts.KEEP, "its time has come; it joins the tail of its queue"
    ),
    Event.CLAIM: Rule((_S.QUEUED,), (_S.RUNNING,), False, Attempts.ADD, "a worker takes it under a new lease token"),
    Event.COMPLETE: Rule(
        (_S.RUNNING,), (_S.COMPLETED,), True, Attempts.KEEP, "the handler returned; the row moves to history"
    ),
    Event.RETRY: Rule(
        (_S.RUNNING,),
        (_S.DELAYED, _S.QUEUED),
        True,
        Attempts.KEEP,
        "the attempt failed and attempts remain; it waits for its backoff; earlier deaths of workers count no more",
    ),
    Event.SNOOZE: Rule(
        (_S.RUNNING,),
        (_S.DELAYED, _S.QUEUED),
        True,
        Attempts.GIVE_BACK,
        "the handler wants to be run again later; earlier deaths of workers count no more",
    ),
    Event.RELEASE: Rule(
        (_S.RUNNING,),
        (_S.QUEUED,),
        True,
        Attempts.GIVE_BACK,
        "the worker hands it back unfinished, as at shutdown, or is lost before it begins it or with most of the fleet",
    ),
    Event.HAND_BACK: Rule(
        (_S.RUNNING,),
        (_S.DELAYED,),
        True,
        Attempts.GIVE_BACK,
        "the worker does not know the task's feature, or kind of it; it waits a moment for one that does",
        quiet=True,
    ),
    Event.FAIL: Rule(
        (_S.RUNNING,),
        (_S.FAILED,),
        True,
        Attempts.KEEP,
        "the failure is final, or attempts are used up; a dead letter is written",
    ),
    Event.ABORT: Rule(
        (_S.RUNNING,),
        (_S.CANCELLED,),
        True,
        Attempts.KEEP,
        "the handler ended after a cancel request, or cancelled its own task",
    ),
    Event.EXPIRE: Rule(
        (_S.RUNNING,),
        (_S.QUEUED, _S.DELAYED, _S.FAILED),
        True,
        Attempts.KEEP,
        "the lease ran out; the attempt counts, and where its worker is dead, one more is allowed in its place",
    ),
    Event.CANCEL: Rule(
        (_S.QUEUED, _S.DELAYED, _S.PAUSED, _S.FAILED),
        (_S.CANCELLED,),
        False,
        Attempts.KEEP,
        "an operator or producer no longer wants it; it moves to history with its payload",
    ),
    Event.PAUSE: Rule(
        (_S.QUEUED, _S.DELAYED),
        (_S.PAUSED,),
        False,
        Attempts.KEEP,
        "an operator holds this task, or a worker met it while its group is paused",
    ),
    Event.RESUME: Rule(
        (_S.PAUSED,), (_S.QUEUED, _S.DELAYED), False, Attempts.KEEP, "the hold is lifted; a future run-at is still kept"
    ),
    Event.REDRIVE: Rule(
        (_S.FAILED, _S.CANCELLED),
        (_S.QUEUED,),
        False,
        Attempts.RESET,
        "an operator retries it; attempts and error are cleared, replay_count grows",
    ),
    Event.REJECT: Rule(
        (_S.QUEUED, _S.DELAYED, _S.PAUSED, _S.RUNNING),
        (_S.FAILED,),
        False,
        Attempts.KEEP,
        "its row is damaged, or its time is over while nobody may run it; it is failed by itself, with a dead letter",
    ),
    Event.POSTPONE: Rule(
        (_S.QUEUED,),
        (_S.DELAYED,),
        False,
        Attempts.KEEP,
        "its row cannot be worked with, and whoever met it does not know its feature; it makes way for the others",
        quiet=True,
    ),
}


class Meets(StrEnum):
    """What a move may meet in the row that makes it lead elsewhere."""

    CANCEL_REQUESTED = "cancel_requested"  # somebody has asked whoever runs it to stop
    EARLY = "early"  # its time has not come


# Where a move leads instead of its target. Only a store sees both, the move and the row; what it makes of them is said
# here. A move that leads where the task is already is none, and is reported lost.
INSTEAD: dict[tuple[Event, Meets], State] = {
    # A task somebody wants cancelled is not queued again, nor failed for want of a worker.
    (Event.RETRY, Meets.CANCEL_REQUESTED): _S.CANCELLED,
    (Event.SNOOZE, Meets.CANCEL_REQUESTED): _S.CANCELLED,
    (Event.RELEASE, Meets.CANCEL_REQUESTED): _S.CANCELLED,
    (Event.EXPIRE, Meets.CANCEL_REQUESTED): _S.CANCELLED,
    # Ending it would have effects, which this process does not know: it is left to recovery by one that does.
    (Event.HAND_BACK, Meets.CANCEL_REQUESTED): _S.RUNNING,
    (Event.RESUME, Meets.EARLY): _S.DELAYED,
}


def lands(event: Event, to: State, meets: Collection[Meets]) -> State:
    """Returns the state that a move leads to, by what it meets in the row."""
    return next((INSTEAD[event, one] for one in Meets if one in meets and (event, one) in INSTEAD), to)


MAX_CUT_OFFS = 5


@dataclass(slots=True, frozen=True)
class Policy:
    """How a kind is retried."""

    max_attempts: int = 5  # of a task for which nothing else is said
    backoff: Backoff = field(default_factory=Backoff)
    history: float | None = None  # seconds that completed tasks are kept; None: as long as all others, 0: not at all
    # A task that was aboard so many workers in a row that were lost is failed; None: something else bounds it.
    max_deaths: int | None = 3
    tries: int | None = None  # attempts that a worker gives a task at most, whatever the task allows

    @property
    def max_cut_offs(self) -> int:
        """How often in a row a task may be lost together with most of the fleet before that counts as any other death:
        else tasks that kill a fleet would do so for ever. None of one that the first lost worker fails, since it must
        not be begun twice."""
        return 0 if self.max_deaths == 1 else MAX_CUT_OFFS


# Not frozen: a frozen dataclass costs several microseconds to make, and one of each is made per task.
@dataclass(slots=True)
class Transition:
    """One decided move. A store applies it if the row is in a source state and the fence holds, else reports it lost.

    ``delay`` counts from the store's clock. ``expired`` narrows the fence: the lease must also have run out,
    so that a lease renewed between the look and the move is respected.
    """

    task_id: UUID
    event: Event
    to: State
    token: UUID | None = None
    delay: float = 0.0
    result: str | None = None
    memo: str | None = None
    failure: Failure | None = None
    dead: DeadReason | None = None
    execution_ms: float | None = None
    worker_id: str | None = None
    actor: str | None = None
    reason: str | None = None
    expired: bool = False
    death: bool = False  # its worker was lost: that counts, and one more attempt is allowed
    cut_off: bool = False  # its worker was lost with most of the fleet: that is excused so many times in a row
    action: str | None = None  # what the audit log calls it, when not by its event
    bulk_id: str | None = None
    forgotten: bool = False  # of a cancellation: nobody needs it any more, so a retry by a filter leaves it alone
    sources: tuple[State, ...] | None = None  # fewer than the rule has
    seen: int | None = None  # only if it is still failed by this failure (``Task.failed_seq``)
    keep: float | None = None  # of a completion: see ``Policy.history``
    feature: str | None = None  # of a settlement under a lease: who reacts to it, as the row said when it was claimed
    join: UUID | None = None  # of a settlement under a lease: where it arrives when it ends

    @property
    def rule(self) -> Rule:
        return TABLE[self.event]

    @property
    def origins(self) -> tuple[State, ...]:
        """The states it applies to."""
        return TABLE[self.event].sources if self.sources is None else self.sources


@dataclass(slots=True)
class Lease:
    """What settling needs to know about a leased task."""

    id: UUID
    token: UUID
    attempt: int
    max_attempts: int
    worker_id: str | None = None
    execution_ms: float | None = None
    feature: str | None = None
    join: UUID | None = None


@dataclass(slots=True)
class ExpiredLease(Lease):
    """A lease that ran out, with what the log line about it says."""

    kind: str = ""
    queue: str = ""
    trace_id: str | None = None
    timeout: float | None = None  # the task's own limit
    seconds: float = 0.0  # how long ago the attempt began
    # Workers in a row that were lost while they had the task, before this one; None: whoever had it is not known to be
    # dead.
    deaths: int | None = None
    unbegun: bool = False  # its worker had it wait: whatever the worker died of, it was not this one
    # How often in a row, before this time, it was aboard a worker that fell silent together with most of the fleet;
    # None: this time it was not.
    cut_offs: int | None = None


def reject(task_id: UUID, why: str) -> Transition:
    """Returns the transition that fails a task whose row cannot be worked with; ``why`` is what the store says about
    it."""
    from redrive.kernel.failure import failure

    cause = failure(ErrorCode.ROW_INVALID, "invalid_row", f"the row of this task cannot be worked with: {why}")
    return Transition(task_id, Event.REJECT, State.FAILED, failure=cause, dead=DeadReason.NON_RETRYABLE)


def postpone(task_id: UUID) -> Transition:
    """Returns the transition that takes such a task out of the way where its feature is not known: failing it would
    have effects."""
    return Transition(task_id, Event.POSTPONE, State.DELAYED, delay=HandedBack().seconds)


def settle(lease: Lease, outcome: Outcome, policy: Policy, jitter: float) -> Transition:
    """Returns the transition that follows from an outcome. Pure: the same inputs give the same transition."""
    match outcome:
        case Completed(result=result):
            done = complete(lease.id, lease.token, result, policy, lease.worker_id, lease.execution_ms, lease.feature)
            done.join = lease.join
            return done
        case Snooze(seconds=seconds, state=state):
            check_seconds(seconds, "Snooze(seconds)")  # the handler may have changed it since
            return _move(lease, Event.SNOOZE, _waiting(seconds), delay=seconds, memo=_memo(state))
        case Released(reason=reason):
            return _move(lease, Event.RELEASE, State.QUEUED, reason=reason)
        case HandedBack(seconds=seconds, reason=reason):
            return _move(lease, Event.HAND_BACK, State.DELAYED, delay=seconds, reason=reason)
        case Cancel(reason=reason):
            return _move(lease, Event.ABORT, State.CANCELLED, reason=reason)
        case Expired(limit=limit):
            if not isinstance(lease, ExpiredLease) or lease.deaths is None:
                return _expire(lease, limit)
            if lease.unbegun:
                why = "its worker was lost before it began"
                return _move(lease, Event.RELEASE, State.QUEUED, reason=why, expired=True)
            if lease.cut_offs is not None and lease.cut_offs < policy.max_cut_offs:
                why = "its worker fell silent, and most others with it: it may have been the network"
                return _move(lease, Event.RELEASE, State.QUEUED, reason=why, expired=True, cut_off=True)
            return _lose(lease, limit, lease.deaths + 1, policy, jitter)
        case Retry() | Fail():
            return settle(lease, declared(outcome), policy, jitter)
        case Failed(failure=cause, after=after, state=state):
            decided = _retry_or_fail(lease, cause, policy, jitter, after)
            decided.memo = _memo(state)
            return decided


# Looked at for every task: a global is found faster than a member of an enum.
_COMPLETE, _COMPLETED = Event.COMPLETE, State.COMPLETED


def complete(
    task_id: UUID,
    token: UUID,
    result: str | None,
    policy: Policy,
    worker_id: str | None,
    execution_ms: float | None,
    feature: str | None,
) -> Transition:
    """Returns the transition of a task whose handler has returned. By position and without detours: one is made for
    every task."""
    done = Transition(task_id, _COMPLETE, _COMPLETED, token, 0.0, result, None, None, None, execution_ms, worker_id)
    if policy.history is not None:
        done.keep = policy.history
    if feature is not None:
        done.feature = feature
    return done


def declared(verdict: Retry | Fail, origin: Origin | None = None) -> Failed:
    """Returns the failure that a verdict declares; one that was raised keeps its stack and place."""
    from redrive.kernel.failure import NOWHERE, declared_failure

    origin = origin or NOWHERE
    if isinstance(verdict, Retry):
        cause = declared_failure(
            ErrorCode.EXECUTION_FAILED,
            "retry_requested",
            verdict.message,
            origin,
            verdict=verdict,
            type=verdict.failure_type,
            cause=verdict.cause,
        )
        return Failed(cause, verdict.after)
    return Failed(
        declared_failure(
            verdict.code,
            "handler_failed",
            verdict.message or verdict.code,
            origin,
            verdict=verdict,
            type=verdict.failure_type,
            cause=verdict.cause,
        ),
        state=verdict.state,
    )


def _retry_or_fail(lease: Lease, cause: Failure, policy: Policy, jitter: float, after: float | None) -> Transition:
    if not cause.retryable:
        return _move(lease, Event.FAIL, State.FAILED, failure=cause, dead=DeadReason.NON_RETRYABLE)
    if lease.attempt >= lease.max_attempts:
        return _move(lease, Event.FAIL, State.FAILED, failure=cause, dead=DeadReason.MAX_ATTEMPTS)
    delay = policy.backoff.at_least(cause.retry_after, lease.attempt, jitter) if after is None else after
    return _move(lease, Event.RETRY, _waiting(delay), delay=delay, failure=cause)


def _lose(lease: Lease, limit: float | None, deaths: int, policy: Policy, jitter: float) -> Transition:
    """Returns the transition of a task whose worker was lost. That uses up none of its attempts, since it may have been
    a neighbour's doing; a task that was aboard too many lost workers is taken for what they died of."""
    if policy.max_deaths is not None and deaths >= policy.max_deaths:
        cause = _lost(lease, deaths)
        dead = DeadReason.NON_RETRYABLE
        return _move(lease, Event.EXPIRE, State.FAILED, failure=cause, dead=dead, expired=True, death=True)
    delay = policy.backoff.delay(deaths - 1, jitter) if deaths > 1 else 0.0
    cause = _ran_out(lease, limit)
    return _move(lease, Event.EXPIRE, _waiting(delay), delay=delay, failure=cause, expired=True, death=True)


def _lost(lease: Lease, deaths: int) -> Failure:
    from redrive.kernel.failure import failure

    cut_offs = lease.cut_offs if isinstance(lease, ExpiredLease) else None
    return failure(
        ErrorCode.EXECUTION_FAILED,
        "worker_lost",
        f"{deaths} workers were lost while they ran it, the last one {lease.worker_id}: it may be what they died of"
        + (f"; {cut_offs} times before, most of the fleet fell silent with it" if cut_offs else ""),
        public=True,
        where=lease.kind if isinstance(lease, ExpiredLease) else "",
        what="workers were lost while they ran it",
    )


def _expire(lease: Lease, limit: float | None) -> Transition:
    cause = _ran_out(lease, limit)
    if lease.attempt >= lease.max_attempts:
        dead = DeadReason.MAX_ATTEMPTS
        return _move(lease, Event.EXPIRE, State.FAILED, failure=cause, dead=dead, expired=True)
    return _move(lease, Event.EXPIRE, State.QUEUED, failure=cause, expired=True)


def _ran_out(lease: Lease, limit: float | None) -> Failure:
    from redrive.kernel.failure import FailureType, failure

    return failure(
        ErrorCode.EXECUTION_FAILED,
        "lease_expired",
        f"the lease of attempt {lease.attempt} ran out: its worker died, hung or lost the store"
        + ("" if limit is None else f"; by then its time limit of {limit:g} s was over, too"),
        type=FailureType.TIMEOUT,
        public=True,
        # One cause for each kind: what hangs or kills its worker. Whether a limit was over by then is chance.
        where=lease.kind if isinstance(lease, ExpiredLease) else "",
        what="the lease ran out",
    )


def _move(lease: Lease, event: Event, to: State, **values: Any) -> Transition:
    return Transition(
        task_id=lease.id,
        event=event,
        to=to,
        token=lease.token,
        worker_id=lease.worker_id,
        execution_ms=lease.execution_ms,
        feature=lease.feature,
        join=lease.join,
        **values,
    )


def _waiting(delay: float) -> State:
    return State.DELAYED if delay > 0 else State.QUEUED


def _memo(state: Any) -> str | None:
    return None if state is None else encode(state, "state=")
