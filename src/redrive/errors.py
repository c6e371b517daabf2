"""Everything redrive raises, and the error codes a failed task carries.

Each message is written for the person who reads it: what was wrong, where, and (in ``hint``) what to do.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """Codes stored on a failed task. Only ``TASK_EXECUTION_FAILED`` is retried, unless the application says
    otherwise of an exception."""

    PAYLOAD_MISSING = "TASK_PAYLOAD_MISSING"
    PAYLOAD_INVALID = "TASK_PAYLOAD_INVALID"
    PAYLOAD_UNSUPPORTED = "TASK_PAYLOAD_UNSUPPORTED"
    PRECONDITION_FAILED = "TASK_PRECONDITION_FAILED"
    ENTITY_NOT_FOUND = "TASK_ENTITY_NOT_FOUND"
    EXECUTION_FAILED = "TASK_EXECUTION_FAILED"
    ROW_INVALID = "TASK_ROW_INVALID"
    OUTCOME_REFUSED = "TASK_OUTCOME_REFUSED"


class RedriveError(Exception):
    """Base of all errors raised by redrive and its features.

    A class says what it is by its base (``NotFound``, ``Conflict``, ``InvalidInput``, ``NotAllowed``, ``Unavailable``):
    ``status`` is the answer over HTTP, ``exit_code`` that of a command. ``code`` is its own, for programs that read it.
    """

    code = "REDRIVE_ERROR"
    status = 500
    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.hint}" if self.hint else self.message


class NotFound(RedriveError):
    """There is no such thing."""

    code = "NOT_FOUND"
    status = 404


class Conflict(RedriveError):
    """Not possible in the present state of things."""

    code = "CONFLICT"
    status = 409


class NotAllowed(RedriveError):
    """Who asks may not do this."""

    code = "NOT_ALLOWED"
    status = 403


class Unavailable(RedriveError):
    """Not now; the same call may succeed later."""

    code = "UNAVAILABLE"
    status = 503
    exit_code = 3


class ConfigError(RedriveError):
    """A setting, environment variable or store URL that cannot be used."""

    code = "CONFIG_INVALID"


class WrongSetting(ConfigError):
    """A setting, a store's URL or the name of an application cannot be used, or does not exist."""

    exit_code = 2


class KitNeeded(RedriveError, ImportError):
    """What is asked for is part of redrive-kit, a distribution of its own."""

    code = "KIT_NEEDED"
    exit_code = 2


class InvalidInput(RedriveError, ValueError):
    """A value given by the caller is wrong; nothing was changed."""

    code = "INPUT_INVALID"
    status = 422
    exit_code = 2


class PayloadInvalid(InvalidInput):
    """``what``: what is wrong, without anything that the payload holds."""

    code = ErrorCode.PAYLOAD_INVALID.value

    def __init__(self, message: str, *, hint: str | None = None, what: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.what = what


class PayloadMissing(InvalidInput):
    code = ErrorCode.PAYLOAD_MISSING.value


class UnknownKind(InvalidInput):
    code = "KIND_UNKNOWN"


class UnknownQueue(InvalidInput):
    code = "QUEUE_UNKNOWN"


class TooManyNames(InvalidInput):
    """Raised when a task would make one more kind in a queue than there may be that no application has declared."""

    code = "TOO_MANY_NAMES"


class ConnectionUnknown(InvalidInput):
    """The configuration has no connection of this name."""

    code = "CONNECTION_UNKNOWN"


class IdempotencyConflict(Conflict):
    """The key already names a task with another kind, queue or payload."""

    code = "IDEMPOTENCY_CONFLICT"

    def __init__(self, key: str, task_id: object) -> None:
        super().__init__(
            f"idempotency key {key!r} already belongs to task {task_id}, which has another kind, queue or payload",
            hint="use a new key for new work; the existing task was left as it is",
        )
        self.key = key
        self.task_id = task_id


class TaskNotFound(NotFound):
    code = "TASK_NOT_FOUND"


class PlanUnknown(NotFound):
    code = "PLAN_UNKNOWN"


class OperationUnknown(NotFound):
    code = "OPERATION_UNKNOWN"


class ApprovalUnknown(NotFound):
    code = "APPROVAL_UNKNOWN"


class CauseUnknown(NotFound):
    code = "CAUSE_UNKNOWN"


class BatchUnknown(NotFound):
    code = "BATCH_UNKNOWN"


class TokenUnknown(NotFound):
    code = "TOKEN_UNKNOWN"


class ApprovalNeeded(Conflict):
    """A second operator has to agree first; ``why`` is the reason alone."""

    code = "APPROVAL_NEEDED"

    def __init__(self, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"a second operator has to agree, because {why}", hint=hint)
        self.why = why


class Overdrawn(InvalidInput):
    """An account has too little for a posting; nothing was posted. ``account``: which, where the database said it."""

    code = "OVERDRAWN"

    def __init__(self, message: str, *, hint: str | None = None, account: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.account = account


class InvalidTransition(Conflict):
    """The task is in a state from which the requested action is not possible."""

    code = "TRANSITION_INVALID"


class ChangedMeanwhile(Conflict):
    """Somebody else changed the same thing first; nothing of this was done."""

    code = "CHANGED_MEANWHILE"


class LeaseLost(Conflict):
    """Another party holds the task now; the caller's work on it must not be committed."""

    code = "LEASE_LOST"


class StoreError(RedriveError):
    """The store answered, and refused."""

    code = "STORE_ERROR"


class ReactionFailed(StoreError):
    """A feature's code raised while it reacted to the end of a task; nothing of that settlement was kept."""

    code = "REACTION_FAILED"


class TransactionOver(StoreError):
    """A handler's transaction is used after its block has ended: a mistake in the handler, and no outage."""

    code = "TRANSACTION_OVER"


class StoreUnavailable(StoreError, Unavailable):
    """The store cannot be reached or is shutting down; the same call may succeed later."""

    code = "STORE_UNAVAILABLE"
    vague = False  # a connection is gone, and has not said why


class StoreBlocked(StoreUnavailable):
    """Somebody's open transaction holds a row that this call needs; nothing of the call happened."""

    code = "STORE_BLOCKED"


class MayHaveLanded(StoreUnavailable):
    """The answer to a commit was lost: all of it happened, or nothing."""

    code = "MAY_HAVE_LANDED"


class StoreUnusable(StoreError, Unavailable):
    """The store is reachable but cannot work: corrupt, read-only or full."""

    code = "STORE_UNUSABLE"
    exit_code = RedriveError.exit_code  # to wait for it does not help


class SchemaError(StoreError):
    """The schema is missing, older than this code needs, or newer than it understands."""

    code = "SCHEMA_MISMATCH"


class ScheduleUnknown(NotFound):
    """No application has declared a schedule of this name."""

    code = "SCHEDULE_UNKNOWN"


class TooManyStreams(Unavailable):
    """More pages are open than one process keeps up to date."""

    code = "TOO_MANY_STREAMS"


class PageUnknown(NotFound):
    """The console has no such page."""

    code = "PAGE_UNKNOWN"


class PageFailed(RedriveError):
    """A page of the console raised something: a mistake in it, which the log shows."""

    code = "PAGE_FAILED"
