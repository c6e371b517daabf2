"""What a provider is: somebody who runs jobs elsewhere. They are started, then looked at until they have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from redrive.errors import InvalidInput
from redrive.kernel.classify import CODES, UNKNOWN, Classification, FailureType, by_status

# What came is not what was agreed upon. Nobody knows what it means for the job, so that nothing is given up for it.
NONSENSE = Classification("provider_answer", FailureType.MODEL_ERROR, True)
UNFIT_ITEM = Classification("provider_item", FailureType.PARAM_ERROR, False)


class ProviderUnknown(InvalidInput):
    """The application has no provider of this name."""

    code = "PROVIDER_UNKNOWN"


class ProviderError(Exception):
    """A call of a provider that did not succeed. ``transient``: the same call may succeed later.

    No ``RedriveError``: it is what somebody else answered, and ``status_code`` is theirs.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        status_code: int | None = None,
        code: str | None = None,
        retry_after: str | None = None,
        classification: Classification | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.provider = provider
        self.status_code = status_code
        self.code = code
        # As a response has it: whoever classifies an exception looks for it there.
        self.headers = {} if retry_after is None else {"Retry-After": retry_after}
        # What a provider calls it comes first: some answer 400 to what should be tried again.
        known = CODES.get(code or "") or (UNKNOWN if status_code is None else by_status(status_code))
        self.classification = classification or known

    @property
    def transient(self) -> bool:
        return bool(self.classification.retryable)

    @property
    def reason(self) -> str:
        return self.classification.reason

    @property
    def failure_type(self) -> FailureType:
        return self.classification.type


class JobState(StrEnum):
    """Where a job is, as its provider says."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset((JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED))


@dataclass(slots=True, frozen=True)
class JobFailure:
    """Why a job failed at its provider. ``status_code`` and ``code`` are what it says; ``failure_type``, ``reason`` and
    ``retryable`` follow from them, by the application's rules first, unless the provider knows better."""

    message: str
    status_code: int | None = None
    code: str | None = None
    failure_type: FailureType | None = None
    reason: str | None = None
    retryable: bool | None = None


@dataclass(slots=True, frozen=True)
class Status:
    """What became of a job so far. ``progress`` is from 0 to 100; None where the provider does not say."""

    state: JobState
    progress: float | None = None
    result: Any = None
    failure: JobFailure | None = None

    @classmethod
    def pending(cls) -> Status:
        return cls(JobState.PENDING)

    @classmethod
    def running(cls, progress: float | None = None) -> Status:
        return cls(JobState.RUNNING, progress)

    @classmethod
    def succeeded(cls, result: Any = None) -> Status:
        return cls(JobState.SUCCEEDED, 100.0, result)

    @classmethod
    def failed(
        cls,
        message: str,
        *,
        status_code: int | None = None,
        code: str | None = None,
        failure_type: FailureType | str | None = None,
    ) -> Status:
        known = None if failure_type is None else FailureType(failure_type)
        return cls(JobState.FAILED, failure=JobFailure(message, status_code, code, known))

    @classmethod
    def cancelled(cls) -> Status:
        return cls(JobState.CANCELLED)


@dataclass(slots=True, frozen=True)
class RemoteItem:
    """What is to be done: an item's id and payload, and where the provider may call when it is done."""

    id: str
    payload: Any = None
    callback_url: str | None = None


# A job that could not be looked at, while others could, has its error in place of a status.
Polled = Mapping[str, Status | ProviderError]


@runtime_checkable
class Provider(Protocol):
    """Starts jobs and says what became of them. What it raises is classified like any failure of a handler.

    It may also have ``max_poll`` (how many ids one call of ``poll`` takes; 1 if it has none), ``max_seconds`` (what one
    call may take; ``PROVIDER_CALL_SECONDS`` if it has none), ``async cancel(job_id)``, ``async find(idempotency_key)``
    (the id of the job that was started with it, None where there is none) and ``async close()``.
    """

    async def start(self, item: RemoteItem, idempotency_key: str) -> str:
        """Starts a job and returns its id. The same key never starts a second job: it returns the first one's id."""
        ...

    async def poll(self, ids: Sequence[str]) -> Polled:
        """Returns the status of each of these jobs; those that the provider does not know are left out."""
        ...
