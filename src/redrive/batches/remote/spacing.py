"""When an item is looked at again, and what follows from a look. Pure: no clock, no provider."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redrive.errors import InvalidInput
from redrive.kernel.circuit import DOWN_REASONS, DOWN_TYPES
from redrive.kernel.classify import FailureType
from redrive.kernel.outcome import Cancel, Fail, Snooze
from redrive.kernel.task import check_name
from redrive.remote import JobFailure, JobState, ProviderError, Status

ALL_DONE = 100.0
FEW, SOME = 1, 3  # polls after which the next waits longer
MOST_BACKOFF = 300.0
TOO_LONG = "BATCH_MAX_ITEM_SECONDS"
JOB_FAILED, START_REFUSED = "PROVIDER_JOB_FAILED", "PROVIDER_START_REFUSED"
BY_PROVIDER = "the provider cancelled the job"


@dataclass(slots=True, frozen=True)
class Spacing:
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


def started(job: str, spacing: Spacing) -> Snooze:
    """Returns what follows from a start: the first poll, after a while."""
    return Snooze(spacing.first, state={"job": job, "new": True, "polls": 0})


def not_started(error: ProviderError, tries: int, age: float, spacing: Spacing) -> Snooze | Fail:
    """Returns what follows from a start that failed. Where the same call may succeed later it is repeated with the same
    key, and uses up no attempt: it is the provider that is in trouble, not the item."""
    if not error.transient:
        return Fail(_code(error.code, START_REFUSED), error.message, failure_type=error.failure_type)
    if age >= spacing.max_seconds:
        return _too_long(spacing, error.message)
    wait = _wish(error) or min(max(spacing.first, 1.0) * 2.0 ** min(tries, 10), MOST_BACKOFF)
    return Snooze(wait, state={"tries": tries + 1}, down=_down(error))


def polled(seen: Seen, found: Status | ProviderError | None, spacing: Spacing) -> Any:
    """Returns what follows from a poll: a result, or Snooze, Fail, Cancel. ``found`` is None where the provider does
    not know the job: that counts as a poll, and ends by their number."""
    if isinstance(found, ProviderError):
        return _unseen(seen, found, spacing)
    if found is not None and found.state is JobState.SUCCEEDED:
        return found.result
    if found is not None and found.state is JobState.FAILED:
        return _failed(found.failure or JobFailure("the provider does not say why"))
    if found is not None and found.state is JobState.CANCELLED:
        return Cancel(BY_PROVIDER)
    return _goes_on(seen, None if found is None else found.progress, spacing)


def _goes_on(seen: Seen, progress: float | None, spacing: Spacing) -> Snooze | Fail:
    polls = seen.polls + 1
    if polls >= spacing.max_polls:
        code = f"MAX_POLL_COUNT_REACHED:{spacing.max_polls}"
        message = f"job {seen.job} had not ended after {spacing.max_polls} polls"
        return Fail(code, message, failure_type=FailureType.TIMEOUT)
    if seen.age >= spacing.max_seconds:
        return _too_long(spacing, f"job {seen.job} had not ended")
    # At once when it is all done, but only the first time that this is said: a provider that says so and does not end
    # would use up all polls within a second.
    done = progress is not None and progress >= ALL_DONE and (seen.progress is None or seen.progress < ALL_DONE)
    state = {"job": seen.job, "polls": polls, "polled": True, "progress": progress, "asked": seen.asked}
    return Snooze(0.0 if done else spacing.wait(polls), state=state)


def _unseen(seen: Seen, error: ProviderError, spacing: Spacing) -> Snooze | Fail:
    """A poll that failed says nothing about the job: it is not counted, and ends only what takes too long."""
    if seen.age >= spacing.max_seconds:
        return _too_long(spacing, error.message)
    state = {"job": seen.job, "polls": seen.polls, "asked": seen.asked}
    return Snooze(max(_wish(error), spacing.wait(seen.polls)), state=state, down=_down(error))


def _down(error: ProviderError) -> str | None:
    """Returns why the provider counts as down, for the circuit of its items; None where only this call failed."""
    down = error.transient and (error.reason in DOWN_REASONS or error.failure_type in DOWN_TYPES)
    return f"{error.provider or 'the provider'}: {error.reason}" if down else None


def _failed(failure: JobFailure) -> Fail:
    return Fail(_code(failure.code, JOB_FAILED), failure.message, failure_type=failure.failure_type)


def _too_long(spacing: Spacing, said: str) -> Fail:
    message = f"it had not ended after {spacing.max_seconds:g} seconds; last: {said}"
    return Fail(TOO_LONG, message, failure_type=FailureType.TIMEOUT)


def _wish(error: ProviderError) -> float:
    """Returns the seconds for which a provider wants to be left alone; 0 where it does not say."""
    try:
        return min(max(float(error.headers.get("Retry-After", 0)), 0.0), 3600.0)
    except ValueError:
        return 0.0


def _code(given: str | None, otherwise: str) -> str:
    """Returns a provider's own code where it can be one of ours. That of a failure that is retried is not: the job has
    ended, and its item is retried with the whole batch."""
    try:
        return otherwise if given is None or given.startswith("TASK_") else check_name(given, "code")
    except InvalidInput:
        return otherwise
