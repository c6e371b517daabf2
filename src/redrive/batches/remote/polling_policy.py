"""When an item is looked at again, and what follows from a look. Pure: no clock, no provider."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redrive.batches.names import TOO_LONG
from redrive.batches.remote.item_task import BY_PROVIDER, ItemMemo
from redrive.errors import InvalidInput, PayloadInvalid
from redrive.kernel.circuit import DOWN_REASONS, DOWN_TYPES
from redrive.kernel.classify import FailureType
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.kernel.payload import encode
from redrive.kernel.retry_after import parse_retry_after
from redrive.kernel.task import check_name
from redrive.kernel.wording import clean
from redrive.remote import JobFailure, JobState, ProviderError, Status

NOT_STORED = "RESULT_NOT_STORED"
ALL_DONE = 100.0
FEW, SOME = 1, 3  # polls after which the next waits longer
MOST_BACKOFF = 300.0
MOST_WISHED = 3600.0
MOST_WORDS = 500
JOB_FAILED, JOB_SHARED = "PROVIDER_JOB_FAILED", "PROVIDER_JOB_SHARED"
START_REFUSED, START_FAILED = "PROVIDER_START_REFUSED", "PROVIDER_START_FAILED"
BUSY = 429  # the provider wants to be left alone for a while: that says nothing about an item
STUCK = 2  # starts of an item that failed, after which its chain goes on without it
UNKNOWN = ItemMemo(unknown=True).state()


def kept_result(job: str, result: Any) -> Any:
    """Returns a result as it can be kept, characters that no store holds written out; else a failure that says where
    the result is."""
    try:
        encode(result, "its result")
        return result
    except PayloadInvalid:
        pass
    try:
        cleaned = _cleaned(result)
        encode(cleaned, "its result")
        return cleaned
    except PayloadInvalid as error:
        told = error.message
    except RecursionError:
        told = "its result is nested too deep"
    message = f"job {job} succeeded, and is not charged: {told}. The provider has it"
    return Fail(NOT_STORED, message)


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    return value


@dataclass(slots=True, frozen=True)
class PollingPolicy:
    """How long to wait between polls, and how many, and how many seconds, an item may take; and its start alone."""

    first: float = 5.0
    next: float = 15.0
    later: float = 30.0
    max_polls: int = 20
    max_seconds: float = 86_400.0
    max_starts: int = 10
    max_start_seconds: float = 21_600.0

    def wait(self, polls: int) -> float:
        """Returns the seconds from a poll, or the start, to the next poll."""
        return self.first if polls <= FEW else self.next if polls <= SOME else self.later


@dataclass(slots=True, frozen=True)
class Seen:
    """What is known of an item before it is looked at."""

    job: str
    polls: int = 0
    progress: float | None = None
    age: float = 0.0  # seconds since its start
    asked: bool = False  # its end was asked for
    called: bool = False  # its provider has said that it has ended
    new: bool = False  # its job is of an earlier start: with this look the next item of its chain may come
    now: float = 0.0  # by the store's clock
    since: float | None = None  # when the first of the looks failed that have failed since the last good one


@dataclass(slots=True, frozen=True)
class FailedStart:
    """What is known of an item whose start has failed, and of the start."""

    error: ProviderError
    memo: ItemMemo
    now: float = 0.0  # by the store's clock
    age: float = 0.0  # seconds since its turn came
    unsure: bool = False  # this start, or an earlier one, may have come about
    up: bool = True  # its provider's circuit is closed: others are started
    may_step: bool = False  # no other item has stepped out of its chain
    probe: bool = False  # it was the probe of its provider's open circuit, and is in its chain

    @property
    def counts(self) -> bool:
        """Whether it is one of the starts that an item has: not where the provider is down or busy for all."""
        return self.up and self.error.status_code != BUSY

    @property
    def tries(self) -> int:
        return self.memo.tries + self.counts

    @property
    def steps(self) -> bool:
        """Whether its chain goes on without it: it fails again and again, or nobody else may be there to be the next
        probe."""
        return self.probe or (self.counts and self.tries >= STUCK and self.may_step)

    @property
    def since(self) -> float:
        return self.now if self.memo.since is None else self.memo.since

    def final(self, policy: PollingPolicy) -> bool:
        """Returns whether it is not repeated: the provider refuses it, or it has failed too often, or for too long."""
        took = self.now - self.since
        over = took >= policy.max_start_seconds or self.age >= policy.max_seconds
        return not self.error.transient or self.tries >= policy.max_starts or over


def started(job: str, policy: PollingPolicy) -> Snooze:
    """Returns what follows from a start: the first poll, after a while."""
    return Snooze(policy.first, state=ItemMemo(job=job, new=True, polls=0).state())


def put_off(memo: ItemMemo, *, unsure: bool = False) -> Snooze:
    """Returns what becomes of an item that a bounded pass takes, and may do no more of: what is known of it stays."""
    kept = replace(
        memo, new=False, polled=False, heard=False, stepped=False, progress=None, unsure=memo.unsure or unsure
    )
    return Snooze(0.0, state=kept.state() or None, evidence=False)


def no_place(memo: ItemMemo, policy: PollingPolicy, *, unsure: bool = False) -> Snooze:
    """Returns what becomes of an item that may not be started, since as many jobs run as may: when one has ended, it is
    made due; else it looks by itself after a while. ``unsure``: an earlier start of it may have come about."""
    why = "as many jobs are in flight as may be (BATCH_MAX_IN_FLIGHT, or the batch's own bound)"
    kept = replace(memo, stepped=False, flight=True, why=why, unsure=memo.unsure or unsure)
    return Snooze(max(policy.later, 1.0), state=kept.state(), evidence=False)


def interrupted(memo: ItemMemo) -> Snooze:
    """Returns what becomes of an item whose start was cut short: it goes back to its queue, as one that may have a
    job."""
    kept = replace(memo, stepped=False, flight=False, why=None, unsure=True)
    return Snooze(0.0, state=kept.state(), evidence=False)


def start_again(failed: FailedStart, policy: PollingPolicy) -> Snooze:
    """Returns what follows from a start that failed, where the same call may succeed later: it is repeated with the
    same key, and uses up no attempt. One that fails again and again steps out of its chain."""
    error = failed.error
    wait = _wish(error) or min(max(policy.first, 1.0) * 2.0 ** min(failed.memo.tries, 10), MOST_BACKOFF)
    of = f" (attempt {failed.tries} of {policy.max_starts})" if failed.tries else ""
    left = ItemMemo(
        tries=failed.tries,
        since=failed.since,
        code=error.code,
        type=str(error.failure_type),
        stepped=failed.steps,
        why=f"it could not be started{of}: {error.message}"[:MOST_WORDS],
        unsure=failed.unsure,
    )
    return Snooze(wait, state=left.state(), down=_down(error), down_for=max(failed.now - failed.since, 0.0))


def not_started(failed: FailedStart, policy: PollingPolicy, *, unknown: bool = False) -> Fail:
    """Returns how an item ends whose start is not repeated, by what the provider calls it. ``unknown``: it may have
    come about all the same, and nobody can ask."""
    error = failed.error
    state = UNKNOWN if unknown else None
    if not error.transient:
        code = provider_code(error.code, START_REFUSED)
        return Fail(code, error.message, failure_type=error.failure_type, state=state)
    took = f"{failed.tries} attempts, {failed.now - failed.since:.0f} seconds"
    message = f"it could not be started ({took}): {error.message}"
    return Fail(provider_code(error.code, START_FAILED), message, failure_type=error.failure_type, state=state)


def shared(job: str | None, other: int) -> Fail:
    """Returns what becomes of an item whose job is that of another item: of two starts one id came back, and nobody
    pays twice for one job."""
    message = f"the provider gave it the job {job}, which is that of item {other} already: is that the id of a job?"
    return Fail(JOB_SHARED, message, failure_type=FailureType.MODEL_ERROR)


def polled(seen: Seen, found: Status | ProviderError | None, policy: PollingPolicy) -> Any:
    """Returns what follows from a poll: a result, or Snooze, Fail, Cancel. ``found`` is None where the provider does
    not know the job: that counts as a poll, and ends by their number."""
    if isinstance(found, ProviderError):
        return _unseen(seen, found, policy)
    if found is not None and found.state is JobState.SUCCEEDED:
        return kept_result(seen.job, found.result)
    if found is not None and found.state is JobState.FAILED:
        return _failed(found.failure or JobFailure("the provider does not say why"))
    if found is not None and found.state is JobState.CANCELLED:
        return Cancel(BY_PROVIDER)
    return _goes_on(seen, found, policy)


def _goes_on(seen: Seen, found: Status | None, policy: PollingPolicy) -> Snooze | Fail:
    polls, progress = seen.polls + 1, None if found is None else found.progress
    unknown = f"the provider does not know job {seen.job}: it has lost or removed it" if found is None else None
    if polls >= policy.max_polls:
        code = f"MAX_POLL_COUNT_REACHED:{policy.max_polls}"
        message = unknown or f"job {seen.job} had not ended"
        told = f"{message}, after {policy.max_polls} polls"
        return Fail(code, told, failure_type=FailureType.TIMEOUT, state=UNKNOWN)
    if seen.age >= policy.max_seconds:
        return _too_long(policy, unknown or f"job {seen.job} had not ended")
    # At once when it is all done, but only the first time that this is said: a provider that says so and does not end
    # would use up all polls within a second.
    done = progress is not None and progress >= ALL_DONE and (seen.progress is None or seen.progress < ALL_DONE)
    left = ItemMemo(
        job=seen.job,
        new=seen.new,
        polls=polls,
        polled=True,
        heard=seen.called,
        progress=progress,
        asked=seen.asked,
        why=None if unknown is None else f"{unknown} (poll {polls} of {policy.max_polls})",
    )
    return Snooze(0.0 if done else policy.wait(polls), state=left.state())


def _unseen(seen: Seen, error: ProviderError, policy: PollingPolicy) -> Snooze | Fail:
    """A poll that failed says nothing about the job: it is not counted, and ends only what takes too long."""
    if seen.age >= policy.max_seconds:
        return _too_long(policy, error.message)
    why = f"job {seen.job} could not be looked at: {error.message}"[:MOST_WORDS]
    since = seen.now if seen.since is None else seen.since
    left = ItemMemo(job=seen.job, new=seen.new, polls=seen.polls, since=since, asked=seen.asked, why=why)
    wait, down_for = max(_wish(error), policy.wait(seen.polls)), max(seen.now - since, 0.0)
    return Snooze(wait, state=left.state(), down=_down(error), down_for=down_for)


def _down(error: ProviderError) -> str | None:
    """Returns why the provider counts as down, for the circuit of its items; None where only this call failed."""
    down = error.transient and (error.reason in DOWN_REASONS or error.failure_type in DOWN_TYPES)
    return f"{error.provider or 'the provider'}: {error.reason}" if down else None


def _failed(failure: JobFailure) -> Fail:
    return Fail(provider_code(failure.code, JOB_FAILED), failure.message, failure_type=failure.failure_type)


def _too_long(policy: PollingPolicy, said: str) -> Fail:
    message = f"it had not ended after {policy.max_seconds:g} seconds; last: {said}"
    return Fail(TOO_LONG, message, failure_type=FailureType.TIMEOUT, state=UNKNOWN)


def _wish(error: ProviderError) -> float:
    """Returns the seconds for which a provider wants to be left alone; 0 where it does not say."""
    wish = parse_retry_after(error.headers.get("Retry-After", ""), None)
    return 0.0 if wish is None else min(wish, MOST_WISHED)


def provider_code(given: str | None, otherwise: str) -> str:
    """Returns a provider's own code where it can be one of ours. That of a failure that is retried is not: the job has
    ended, and its item is retried with the whole batch."""
    try:
        return otherwise if given is None or given.startswith("TASK_") else check_name(given, "code")
    except InvalidInput:
        return otherwise
