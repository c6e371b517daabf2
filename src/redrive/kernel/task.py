"""The task: one durable unit of work, and the values around it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput

# The limits of what a task carries: one set for every way in. PostgreSQL has them as domains, SQLite as checks of its
# table and in its enqueue; docs/guide.md lists them.
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_PAYLOAD_DEPTH = 100  # lists and objects inside each other
PRIORITY_MIN, PRIORITY_MAX = -32768, 32767
MAX_DELAY_SECONDS = 10 * 366 * 86400
MAX_ATTEMPTS = 1_000_000
MAX_TEXT = 512
MAX_TEXT_BYTES = 1536  # an index of PostgreSQL holds no more than 2,700 bytes, and some hold several of these
MAX_TIMEOUT_SECONDS = 2_000_000
MAX_FACTS_BYTES = 4096
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
# Keys of the tasks that schedules fire: whoever could take one in advance would keep that run from happening.
SCHEDULE_KEYS = "schedule:"
FEATURE_KEYS = "redrive:"  # of tasks that features make, each once
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,119}")
# Control characters, line separators, and what turns the direction of the text around it.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class State(StrEnum):
    """The states of a task. Completed and cancelled tasks are in history, all others in the live table."""

    QUEUED = "queued"
    DELAYED = "delayed"
    RUNNING = "running"
    PAUSED = "paused"
    FAILED = "failed"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


HISTORY = (State.COMPLETED, State.CANCELLED)
LIVE = tuple(state for state in State if state not in HISTORY)
WAITING = (State.QUEUED, State.DELAYED, State.PAUSED)


@dataclass(slots=True)
class Task:
    """A task as the store holds it. Fields that do not apply to its state are None."""

    id: UUID
    kind: str
    queue: str
    state: State
    payload: Any = None
    priority: int = 0
    attempt_count: int = 0
    max_attempts: int = 1
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    timeout: float | None = None
    created_at: datetime | None = None
    run_at: datetime | None = None
    next_attempt_at: datetime | None = None
    last_attempt_at: datetime | None = None
    lease_token: UUID | None = None
    lease_expires_at: datetime | None = None
    worker_id: str | None = None
    cancel_requested_at: datetime | None = None
    paused_by: str | None = None
    progress: Any = None
    memo: Any = None
    error_code: str | None = None
    error_reason: str | None = None
    failure_type: str | None = None
    error_message: str | None = None
    error_stack: str | None = None
    error_fingerprint: str | None = None
    error_summary: Any = None
    failed_at: datetime | None = None
    failed_seq: int | None = None
    dead_reason: str | None = None
    replay_count: int = 0
    last_replayed_at: datetime | None = None
    last_replayed_by: str | None = None
    last_replayed_reason: str | None = None
    last_replayed_bulk_id: str | None = None
    finished_at: datetime | None = None
    execution_ms: float | None = None
    result: Any = None
    erased_at: datetime | None = None
    forgotten: bool = False  # of a cancelled one: nobody needs it any more
    feature: str | None = None
    facts: Any = None  # what that feature, or who made the task, wrote into the row
    join_id: UUID | None = None
    deduplicated: bool = False

    @property
    def failed(self) -> bool:
        return self.state is State.FAILED

    @property
    def finished(self) -> bool:
        return self.state in HISTORY

    @property
    def error(self) -> TaskError | None:
        """Why it failed, or failed last; None when it did not."""
        if self.error_code is None:
            return None
        return TaskError(self.error_code, self.error_message or "", self.error_stack, self.failed_at)


@dataclass(slots=True, frozen=True)
class TaskError:
    """What is known about a failure: its code, message and stack, and when the task failed for good."""

    code: str
    message: str
    stack: str | None
    at: datetime | None


@dataclass(slots=True)
class NewTask:
    """What a producer asks for. ``payload`` is JSON text, already checked; times are left to the store's clock."""

    id: UUID
    kind: str
    queue: str
    payload: str | None
    priority: int = 0
    max_attempts: int = 1
    delay: float | None = None
    run_at: datetime | None = None
    timeout: float | None = None
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    feature: str | None = None  # who reacts to its moves
    facts: str | None = None  # what the feature, or who made it, wants to know then, as JSON text
    join: UUID | None = None  # the join that it is a member of
    own: bool = False  # a feature made it: its kind and its key may be kept for that feature
    by_kind: bool = False  # its max_attempts is a guess: where an application has a handler, that one's goes before it
    declared: bool = False  # its producer's application declares or routes its kind and queue, and says so
    taken: bool = field(default=False, init=False, repr=False, compare=False)  # a task with its id was made of it


@dataclass(slots=True)
class Enqueued:
    """What an enqueue returns: the task's id, and whether this call made it."""

    id: UUID
    created: bool = True
    conflict: bool = False


@dataclass(slots=True)
class Claimed:
    """A leased task as a worker gets it: what running it needs, with the payload still as JSON text."""

    id: UUID
    token: UUID
    kind: str
    queue: str
    payload: str | None
    attempt: int
    max_attempts: int
    priority: int
    created_at: datetime
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    idempotency_key: str | None = None
    timeout: float | None = None
    memo: str | None = None
    replay_count: int = 0
    feature: str | None = None
    join: UUID | None = None
    waited: float | None = None  # seconds from when it was due to this, its first start; of later ones it is not known
    trace_parent: str | None = None  # its producer's context, where there was one: see kernel/trace.py


@dataclass(slots=True, frozen=True)
class Attempt:
    """One failed attempt, kept for good."""

    task_id: UUID
    attempt: int
    at: datetime
    code: str
    reason: str
    failure_type: str
    message: str
    stack: str | None
    fingerprint: str
    worker_id: str | None
    execution_ms: float | None
    replay: int = 0
    summary: Any = None
    peer: str | None = None
    build: str | None = None  # of the application


@dataclass(slots=True, frozen=True)
class DeadLetter:
    """The archived record of a terminal failure; it outlives the task's later retry."""

    id: UUID
    task_id: UUID
    dead_at: datetime
    reason: str
    kind: str
    queue: str
    group: str | None
    scope: str | None
    trace_id: str | None
    payload: Any
    attempt_count: int
    max_attempts: int
    replay_count: int
    error_code: str
    error_reason: str
    failure_type: str
    error_message: str
    error_fingerprint: str
    error_summary: Any = None


@dataclass(slots=True, frozen=True)
class Timeline:
    """All that is known about one task, oldest first within each list."""

    task: Task
    attempts: list[Attempt] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    audit: list[AuditRow] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AuditRow:
    id: int
    at: datetime
    actor: str
    action: str
    reason: str | None
    task_id: UUID | None
    bulk_id: str | None
    target: str | None
    before: Any
    after: Any
    kind: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    # For the chain of hashes: what may be erased enters it as one salted digest, which alone is left of it afterwards.
    salt: str | None = field(default=None, repr=False)
    erased: str | None = field(default=None, repr=False)


def check_name(value: object, what: str) -> str:
    """Refuses a kind, queue or schedule name with characters that do not survive URLs, logs and shells."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise InvalidInput(
        f"{what} {value!r} is not a valid name",
        hint="use 1-120 letters, digits, '_', '-', '.' or ':', starting with a letter, digit or '_'",
    )


def check_text(value: object, what: str) -> str | None:
    """Refuses a label (group, scope, trace id, key) that a database cannot hold."""
    if value is None:
        return None
    if not isinstance(value, str) or not value or len(value) > MAX_TEXT:
        raise InvalidInput(f"{what} must be text of 1-{MAX_TEXT} characters, not {_shorten(value)}")
    if not value.isascii() and _bytes(value, what) > MAX_TEXT_BYTES:
        raise InvalidInput(f"{what} {_shorten(value)} is longer than {MAX_TEXT_BYTES} bytes", hint="use a shorter one")
    if _CONTROL.search(value):
        raise InvalidInput(f"{what} {_shorten(value)} contains control characters", hint="use text without line breaks")
    return value


def _bytes(value: str, what: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{what} {_shorten(value)} holds half of a surrogate pair",
            hint="it was probably cut in the middle of a character",
        ) from None


def check_key(value: object) -> str | None:
    """Refuses an idempotency key that callers may not use."""
    key = check_text(value, "idempotency_key")
    refuse_reserved(key)
    return key


def check_own_key(value: object) -> str | None:
    """Refuses an idempotency key that features may not use."""
    key = check_text(value, "idempotency_key")
    refuse_reserved(key, own=True)
    return key


def check_join(value: object) -> UUID:
    if not isinstance(value, UUID):
        raise InvalidInput(f"join must be a UUID, not {_shorten(value)}", hint="a handler's own is ctx.task.join")
    return value


def refuse_reserved(key: str | None, *, own: bool = False) -> None:
    """Refuses an idempotency key that is kept for others. ``own``: that of a task that a feature made."""
    if key is not None and not own and key.startswith(FEATURE_KEYS):
        raise InvalidInput(
            f"idempotency_key {_shorten(key)} begins with {FEATURE_KEYS!r}, which is kept for tasks of features",
            hint="begin it with something else",
        )
    if key is not None and key.startswith(SCHEDULE_KEYS):
        raise InvalidInput(
            f"idempotency_key {_shorten(key)} begins with {SCHEDULE_KEYS!r}, which is kept for the runs of schedules",
            hint="begin it with something else",
        )


def check_labels(task: NewTask) -> None:
    """Checks the labels of a new task, as a store does with what it is given."""
    for value, what in (
        (task.group, "group"),
        (task.scope, "scope"),
        (task.trace_id, "trace_id"),
        (task.idempotency_key, "idempotency_key"),
    ):
        if value is not None:
            check_text(value, what)


def check_feature(task: NewTask) -> None:
    """Checks the feature that reacts to a new task, and the facts that it wants to know then."""
    check_name(task.feature, "feature")
    if task.facts is not None and len(task.facts.encode()) > MAX_FACTS_BYTES:
        raise InvalidInput(f"the facts of a task are longer than {MAX_FACTS_BYTES} bytes", hint="keep them in a table")


def check_timeout(value: object) -> float:
    return check_seconds(value, "timeout", low=0.001, high=MAX_TIMEOUT_SECONDS)


def check_moment(value: object, what: str, now: datetime) -> datetime:
    """Checks a time that somebody asks for: far from the ends of the calendar, where arithmetic stops working."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(
            f"{what} must be a datetime with a time zone", hint="for example datetime.now(UTC) + timedelta(hours=1)"
        )
    if not EARLIEST <= value <= now + timedelta(seconds=MAX_DELAY_SECONDS):
        raise InvalidInput(f"{what} must be after 1970 and at most 10 years ahead, not {value}")
    return value


def check_run_at(value: object, now: datetime) -> datetime:
    return check_moment(value, "run_at", now)


def check_int(value: object, what: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(f"{what} must be a whole number from {low} to {high}, not {_shorten(value)}")
    return value


def check_attempts(value: object) -> int:
    return check_int(value, "max_attempts", 1, MAX_ATTEMPTS)


def check_priority(value: object) -> int:
    """Smaller numbers run first, within a queue."""
    return check_int(value, "priority", PRIORITY_MIN, PRIORITY_MAX)


def check_seconds(value: object, what: str, *, low: float = 0.0, high: float = MAX_DELAY_SECONDS) -> float:
    # `not low <= value` also turns away NaN.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidInput(f"{what} must be from {low:g} to {high:,.15g} seconds, not {_shorten(value)}")
    return float(value)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
