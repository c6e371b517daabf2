"""When an item is looked at again, and what follows from a look. Pure: no clock, no provider."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redrive.batches.remote.item_memo import ItemMemo
from redrive.batches.remote.job_result import kept_result
from redrive.batches.remote.names import TOO_LONG
from redrive.errors import InvalidInput
from redrive.kernel.circuit import DOWN_REASONS, DOWN_TYPES
from redrive.kernel.classify import FailureType
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.kernel.retry_after import parse_retry_after
from redrive.kernel.task import check_name
from redrive.remote import JobFailure, JobState, ProviderError, Status

ALL_DONE = 100.0
FEW, SOME = 1, 3  # polls after which the next waits longer
MOST_BACKOFF = 300.0
MOST_WISHED = 3600.0
MOST_WORDS = 500
JOB_FAILED, START_REFUSED = "PROVIDER_JOB_FAILED", "PROVIDER_START_REFUSED"
JOB_SHARED = "PROVIDER_JOB_SHARED"
BY_PROVIDER = "the provider cancelled the job"


@dataclass(slots=True, frozen=True)
class PollingPolicy:
    """How long to wait between polls, and how many, and how many seconds, an item may take."""

    first: float = 5.0
    next: float = 15.0
    later: float = 30.0
    max_polls: int = 20
    max_seconds: float = 86_400.0

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


def started(job: str, policy: PollingPolicy) -> Snooze:
    """Returns what follows from a start: the first poll, after a while."""
    return Snooze(policy.first, state=ItemMemo(job=job, new=True, polls=0).state())


def put_off(memo: ItemMemo) -> Snooze:
    """Returns what becomes of an item that a bounded pass takes, and may do no more of: what is known of it stays."""
    kept = replace(memo, new=False, polled=False, heard=False, progress=None)
    return Snooze(0.0, state=kept.state() or None)


def interrupted(memo: ItemMemo) -> Snooze:
    """Returns what becomes of an item whose start was cut short: it goes back to its queue, as one that may have a
    job."""
    return Snooze(0.0, state=replace(memo, unsure=True).state())


def not_started(
    error: ProviderError, memo: ItemMemo, age: float, policy: PollingPolicy, *, unsure: bool = False
) -> Snooze | Fail:
    """Returns what follows from a start that failed. Where the same call may succeed later it is repeated with the same
    key, and uses up no attempt: it is the provider that is in trouble, not the item. ``unsure``: it may have come
    about."""
    if not error.transient:
        return Fail(_code(error.code, START_REFUSED), error.message, failure_type=error.failure_type)
    if age >= policy.max_seconds:
        return _too_long(policy, error.message)
    wait = _wish(error) or min(max(policy.first, 1.0) * 2.0 ** min(memo.tries, 10), MOST_BACKOFF)
    why = f"it could not be started: {error.message}"[:MOST_WORDS]
    left = ItemMemo(tries=memo.tries + 1, why=why, unsure=unsure)
    return Snooze(wait, state=left.state(), down=_down(error))


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
        return Fail(code, f"{message}, after {policy.max_polls} polls", failure_type=FailureType.TIMEOUT)
    if seen.age >= policy.max_seconds:
        return _too_long(policy, unknown or f"job {seen.job} had not ended")
    # At once when it is all done, but only the first time that this is said: a provider that says so and does not end
    # would use up all polls within a second.
    done = progress is not None and progress >= ALL_DONE and (seen.progress is None or seen.progress < ALL_DONE)
    left = ItemMemo(
        job=seen.job,
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
    left = ItemMemo(job=seen.job, polls=seen.polls, asked=seen.asked, why=why)
    return Snooze(max(_wish(error), policy.wait(seen.polls)), state=left.state(), down=_down(error))


def _down(error: ProviderError) -> str | None:
    """Returns why the provider counts as down, for the circuit of its items; None where only this call failed."""
    down = error.transient and (error.reason in DOWN_REASONS or error.failure_type in DOWN_TYPES)
    return f"{error.provider or 'the provider'}: {error.reason}" if down else None


def _failed(failure: JobFailure) -> Fail:
    return Fail(_code(failure.code, JOB_FAILED), failure.message, failure_type=failure.failure_type)


def _too_long(policy: PollingPolicy, said: str) -> Fail:
    message = f"it had not ended after {policy.max_seconds:g} seconds; last: {said}"
    return Fail(TOO_LONG, message, failure_type=FailureType.TIMEOUT)


def _wish(error: ProviderError) -> float:
    """Returns the seconds for which a provider wants to be left alone; 0 where it does not say."""
    wish = parse_retry_after(error.headers.get("Retry-After", ""), None)
    return 0.0 if wish is None else min(wish, MOST_WISHED)


def _code(given: str | None, otherwise: str) -> str:
    """Returns a provider's own code where it can be one of ours. That of a failure that is retried is not: the job has
    ended, and its item is retried with the whole batch."""
    try:
        return otherwise if given is None or given.startswith("TASK_") else check_name(given, "code")
    except InvalidInput:
        return otherwise
