"""When an item is looked at again, and what follows from a look. Pure: no clock, no provider."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redrive.batches.names import TOO_LONG
from redrive.batches.remote.item_task import BY_PROVIDER, ItemMemo, ItemRow
from redrive.batches.settings import BatchSettings
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


def _wait(policy: BatchSettings, polls: int) -> float:
    """Returns the seconds from a poll, or the start, to the next poll."""
    return policy.poll_first if polls <= FEW else policy.poll_next if polls <= SOME else policy.poll_later


@dataclass(slots=True, frozen=True)
class FailedStart:
    """What is known of an item whose start has failed, and of the start."""

    error: ProviderError
    row: ItemRow
    memo: ItemMemo
    unsure: bool = False  # this start, or an earlier one, may have come about
    up: bool = True  # its provider's circuit is closed: others are started
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
        return self.probe or (self.counts and self.tries >= STUCK and self.row.may_step)

    @property
    def since(self) -> float:
        return self.row.now if self.memo.since is None else self.memo.since

    @property
    def took(self) -> float:
        """Seconds since the first of its starts failed."""
        return max(self.row.now - self.since, 0.0)

    def final(self, policy: BatchSettings) -> bool:
        """Returns whether it is not repeated: the provider refuses it, or it has failed too often, or for too long."""
        over = self.took >= policy.max_start_seconds or self.row.age >= policy.max_item_seconds
        return not self.error.transient or self.tries >= policy.max_start_attempts or over


def started(job: str, policy: BatchSettings) -> Snooze:
    """Returns what follows from a start: the first poll, after a while."""
    return Snooze(policy.poll_first, state=ItemMemo(job=job, new=True, polls=0).state())


def put_off(memo: ItemMemo, *, unsure: bool = False) -> Snooze:
    """Returns what becomes of an item that a bounded pass takes, and may do no more of: what is known of it stays."""
    kept = replace(
        memo, new=False, polled=False, heard=False, stepped=False, progress=None, unsure=memo.unsure or unsure
    )
    return Snooze(0.0, state=kept.state() or None, evidence=False)


def no_place(memo: ItemMemo, policy: BatchSettings, *, unsure: bool = False) -> Snooze:
    """Returns what becomes of an item that may not be started, since as many jobs run as may: when one has ended, it is
    made due; else it looks by itself after a while. ``unsure``: an earlier start of it may have come about."""
    why = "as many jobs are in flight as may be (BATCH_MAX_IN_FLIGHT, or the batch's own bound)"
    kept = replace(memo, stepped=False, flight=True, why=why, unsure=memo.unsure or unsure)
    return Snooze(max(policy.poll_later, 1.0), state=kept.state(), evidence=False)


def interrupted(memo: ItemMemo) -> Snooze:
    """Returns what becomes of an item whose start was cut short: it goes back to its queue, as one that may have a
    job."""
    kept = replace(memo, stepped=False, flight=False, why=None, unsure=True)
    return Snooze(0.0, state=kept.state(), evidence=False)


def start_again(failed: FailedStart, policy: BatchSettings) -> Snooze:
    """Returns what follows from a start that failed, where the same call may succeed later: it is repeated with the
    same key, and uses up no attempt. One that fails again and again steps out of its chain."""
    error = failed.error
    wait = _wish(error) or min(max(policy.poll_first, 1.0) * 2.0 ** min(failed.memo.tries, 10), MOST_BACKOFF)
    of = f" (attempt {failed.tries} of {policy.max_start_attempts})" if failed.tries else ""
    left = ItemMemo(
        tries=failed.tries,
        since=failed.since,
        code=error.code,
        type=str(error.failure_type),
        stepped=failed.steps,
        why=f"it could not be started{of}: {error.message}"[:MOST_WORDS],
        unsure=failed.unsure,
    )
    return Snooze(wait, state=left.state(), down=_down(error), down_for=failed.took)


def not_started(failed: FailedStart, policy: BatchSettings, *, unknown: bool = False) -> Fail:
    """Returns how an item ends whose start is not repeated, by what the provider calls it. ``unknown``: it may have
    come about all the same, and nobody can ask."""
    error = failed.error
    state = UNKNOWN if unknown else None
    if not error.transient:
        code = provider_code(error.code, START_REFUSED)
        return Fail(code, error.message, failure_type=error.failure_type, state=state)
    took = f"{failed.tries} attempts, {failed.took:.0f} seconds"
    message = f"it could not be started ({took}): {error.message}"
    return Fail(provider_code(error.code, START_FAILED), message, failure_type=error.failure_type, state=state)


def shared(job: str | None, other: int) -> Fail:
    """Returns what becomes of an item whose job is that of another item: of two starts one id came back, and nobody
    pays twice for one job."""
    message = f"the provider gave it the job {job}, which is that of item {other} already: is that the id of a job?"
    return Fail(JOB_SHARED, message, failure_type=FailureType.MODEL_ERROR)


def polled(row: ItemRow, memo: ItemMemo, found: Status | ProviderError | None, policy: BatchSettings) -> Any:
    """Returns what follows from a poll: a result, or Snooze, Fail, Cancel. ``found`` is None where the provider does
    not know the job: that counts as a poll, and ends by their number."""
    if isinstance(found, ProviderError):
        return _unseen(row, memo, found, policy)
    if found is not None and found.state is JobState.SUCCEEDED:
        return kept_result(str(row.job), found.result)
    if found is not None and found.state is JobState.FAILED:
        return _failed(found.failure or JobFailure("the provider does not say why"))
    if found is not None and found.state is JobState.CANCELLED:
        return Cancel(BY_PROVIDER)
    return _goes_on(row, memo, found, policy)


def _goes_on(row: ItemRow, memo: ItemMemo, found: Status | None, policy: BatchSettings) -> Snooze | Fail:
    polls, progress = row.polls + 1, None if found is None else found.progress
    unknown = f"the provider does not know job {row.job}: it has lost or removed it" if found is None else None
    if polls >= policy.max_poll_count:
        code = f"MAX_POLL_COUNT_REACHED:{policy.max_poll_count}"
        message = unknown or f"job {row.job} had not ended"
        told = f"{message}, after {policy.max_poll_count} polls"
        return Fail(code, told, failure_type=FailureType.TIMEOUT, state=UNKNOWN)
    if row.age >= policy.max_item_seconds:
        return _too_long(policy, unknown or f"job {row.job} had not ended")
    # At once when it is all done, but only the first time that this is said: a provider that says so and does not end
    # would use up all polls within a second.
    done = progress is not None and progress >= ALL_DONE and (row.progress is None or row.progress < ALL_DONE)
    left = ItemMemo(
        job=row.job,
        new=row.pending,
        polls=polls,
        polled=True,
        heard=row.called,
        progress=progress,
        asked=memo.asked,
        why=None if unknown is None else f"{unknown} (poll {polls} of {policy.max_poll_count})",
    )
    return Snooze(0.0 if done else _wait(policy, polls), state=left.state())


def _unseen(row: ItemRow, memo: ItemMemo, error: ProviderError, policy: BatchSettings) -> Snooze | Fail:
    """A poll that failed says nothing about the job: it is not counted, and ends only what takes too long."""
    if row.age >= policy.max_item_seconds:
        return _too_long(policy, error.message)
    why = f"job {row.job} could not be looked at: {error.message}"[:MOST_WORDS]
    since = row.now if memo.since is None else memo.since
    left = ItemMemo(job=row.job, new=row.pending, polls=row.polls, since=since, asked=memo.asked, why=why)
    wait, down_for = max(_wish(error), _wait(policy, row.polls)), max(row.now - since, 0.0)
    return Snooze(wait, state=left.state(), down=_down(error), down_for=down_for)


def _down(error: ProviderError) -> str | None:
    """Returns why the provider counts as down, for the circuit of its items; None where only this call failed."""
    down = error.transient and (error.reason in DOWN_REASONS or error.failure_type in DOWN_TYPES)
    return f"{error.provider or 'the provider'}: {error.reason}" if down else None


def _failed(failure: JobFailure) -> Fail:
    return Fail(provider_code(failure.code, JOB_FAILED), failure.message, failure_type=failure.failure_type)


def _too_long(policy: BatchSettings, said: str) -> Fail:
    message = f"it had not ended after {policy.max_item_seconds:g} seconds; last: {said}"
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
