"""Defines what goes over the wire. Names are camelCase, as callers of the earlier system know them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import (
    AfterValidator,
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    model_validator,
)
from pydantic.alias_generators import to_camel

from redrive.kernel.task import EARLIEST


class Out(BaseModel):
    """Base of answers, made from whatever has attributes of the same names."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class _FailFast(FailFast):
    """One that a union can have, whose parts are looked up by their hash."""

    __hash__ = object.__hash__


FIRST_FAULT = _FailFast()  # of a list: the first thing that is wrong with it is told, and not each
MOST_FIELDS = 200  # of one object in a body; payloads are not read by models


class In(BaseModel):
    """Base of request bodies: camelCase or snake_case, nothing that is not known, and every value of its own type: 0 is
    not false, and "5" is no number."""

    model_config = ConfigDict(
        alias_generator=AliasGenerator(
            validation_alias=lambda name: AliasChoices(to_camel(name), name), serialization_alias=to_camel
        ),
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
    )

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        """Refuses very many fields before each of them is refused by itself, which would take long."""
        if isinstance(given, dict) and len(given) > MOST_FIELDS:
            raise ValueError(f"has {len(given):,} fields; known are {', '.join(map(to_camel, cls.model_fields))}")
        return given


def _written_out(value: object) -> object:
    """Refuses a time that is no text: a bare number could be seconds or milliseconds."""
    if isinstance(value, str) and not value.lstrip("+-").replace(".", "", 1).isdigit():
        return value
    raise ValueError("must be a time with a zone, like 2026-01-31T09:00:00Z")


def _within_reach(value: datetime) -> datetime:
    """Refuses a time too near the ends of what a datetime can hold to be taken to any zone."""
    if value.tzinfo is None or not EARLIEST.year <= value.year <= LATEST_YEAR:
        raise ValueError(f"must be a time with a zone, from {EARLIEST.year} to {LATEST_YEAR}")
    return value


LATEST_YEAR = 9000
# What JSON has no type for: given as text.
Moment = Annotated[datetime, Field(strict=False), BeforeValidator(_written_out), AfterValidator(_within_reach)]
Id = Annotated[UUID, Field(strict=False)]


class Problem(BaseModel):
    """RFC 9457. ``code`` is for machines, ``detail`` and ``hint`` for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    hint: str | None = None
    errors: list[dict[str, Any]] | None = None


CUT_DESCRIPTION = "Documents that were left out because they are long; GET …/payload and …/result have them whole."


class BelongsOut(Out):
    feature: str
    label: str
    page: str | None = Field(description="Its page, below the console's address.")


class EarlierNames(Out):
    """What callers of the earlier system know a task by."""

    episode_id: str | None = Field(description="The same as `scope`, by the name of the earlier system.")
    job_kind: str | None = Field(description="The same as `kind`, by the name of the earlier system.")


class TaskOut(EarlierNames):
    id: UUID
    connection: str = Field("default", description="Where it is; left out where there is only one.")
    belongs_to: BelongsOut | None = Field(None, description="By its feature; left out where that does not say.")
    kind: str
    queue: str
    state: str
    payload: Any = Field(description="For operators; viewers see the fields that are declared public.")
    priority: int
    group: str | None
    scope: str | None
    trace_id: str | None
    idempotency_key: str | None
    attempt_count: int
    max_attempts: int
    timeout: float | None
    created_at: datetime | None
    run_at: datetime | None
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    lease_expires_at: datetime | None
    worker_id: str | None
    paused_by: str | None
    cancel_requested_at: datetime | None
    progress: Any
    error_code: str | None
    error_reason: str | None
    failure_type: str | None
    error_message: str | None = Field(description="For operators.")
    error_stack: str | None = Field(description="For operators.")
    error_summary: dict[str, Any] | None = Field(description="What of the failure everybody may see.")
    error_fingerprint: str | None
    dead_reason: str | None
    failed_at: datetime | None
    replay_count: int
    last_replayed_at: datetime | None
    last_replayed_by: str | None
    last_replayed_reason: str | None
    last_replayed_bulk_id: str | None
    finished_at: datetime | None
    erased_at: datetime | None = Field(description="When what it carried was erased.")
    forgotten: bool = Field(description="Of a cancelled one: somebody forgot or purged it, as no longer needed.")
    execution_ms: float | None
    result: Any = Field(description="For operators.")
    deduplicated: bool
    cut: list[str] = Field([], description=CUT_DESCRIPTION)


class AttemptOut(Out):
    attempt: int
    replay: int
    at: datetime
    code: str
    reason: str
    failure_type: str
    message: str | None = Field(description="For operators.")
    stack: str | None = Field(description="For operators.")
    summary: dict[str, Any] | None
    fingerprint: str
    worker_id: str | None
    execution_ms: float | None
    peer: str | None = Field(description="Host and port that it called. For operators.")
    build: str | None = Field(description="Of the application that ran it: REDRIVE_BUILD, else its version.")


class DeadLetterOut(EarlierNames):
    id: UUID
    task_id: UUID
    dead_at: datetime
    reason: str
    dead_reason: str = Field(description="The same, by the name that tasks and filters have for it.")
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
    error_message: str | None = Field(description="For operators.")
    error_summary: dict[str, Any] | None
    error_fingerprint: str
    cut: list[str] = Field([], description=CUT_DESCRIPTION)


class AuditOut(EarlierNames):
    id: int
    at: datetime
    actor: str
    action: str
    reason: str | None
    task_id: UUID | None
    batch_id: str | None
    target: str | None
    kind: str | None
    scope: str | None
    trace_id: str | None
    before: Any
    after: Any
    cut: list[str] = Field([], description="What was left out because it is long; the export has it whole.")


class ReasonOut(Out):
    code: str
    text: str
    fix: str | None


class TaskPage(Out):
    tasks: list[TaskOut]
    next_before: UUID | None = Field(description="Give it as `before` for the next page.")


class TimelineOut(Out):
    task: TaskOut
    why: list[ReasonOut] = Field(description="Why it does not run; empty when it does, or is done.")
    attempts: list[AttemptOut]
    dead_letters: list[DeadLetterOut]
    audit: list[AuditOut]


class DeadLetterPage(Out):
    dead_letters: list[DeadLetterOut]
    next_before: UUID | None


class SkippedOut(Out):
    task_id: UUID
    reason: str


class ObstacleOut(Out):
    code: str = Field(description="paused, circuit or no_worker.")
    text: str
    tasks: int
    fix: str = Field(description="The command against it.")


class PreviewOut(Out):
    total: int = Field(description="Exactly as many match.")
    page: int
    page_size: int
    pages: int
    task_ids: list[UUID]
    tasks: list[TaskOut]
    plan_token: str | None = Field(description="With it, a retry acts on exactly this set.")
    skipped: list[SkippedOut] = Field(
        description="Not to be retried: those named in taskIds, and of this page those that their feature withholds."
    )
    warnings: list[ObstacleOut] = Field(description="With the first page: what would keep them from running.")


class BulkOut(Out):
    """``matched`` are the tasks that are meant. Of a dry run ``wouldRetry`` says which of them could be retried now;
    it has no id, and retried none. ``batchId`` is an operation: ``GET /api/operations/{batchId}`` says what became
    of them."""

    batch_id: str | None
    matched: int
    retried: list[UUID]
    would_retry: list[UUID]
    skipped: list[SkippedOut]
    dry_run: bool
    needs_approval: str | None = Field(None, description="Of a dry run: why a second operator would have to agree.")


class FailedPage(Out):
    tasks: list[TaskOut]
    total: int
    limit: int
    offset: int
    next_before: int | None


class FailureStatsOut(Out):
    total: int
    by_kind: dict[str, int]
    by_group: dict[str, int]
    by_code: dict[str, int]
    by_type: dict[str, int]
    by_reason: dict[str, int]
    by_fingerprint: dict[str, int]


class AuditPage(Out):
    items: list[AuditOut]
    page: int
    page_size: int
    more: bool
    next_before: int | None = Field(description="Give it as `before` for the next page: stable while rows are added.")


class PruneOut(Out):
    matched: int
    removed: int
    dry_run: bool
    batch_id: str | None


class HoldOut(Out):
    target: str
    name: str
    actor: str
    reason: str | None
    at: datetime


class QueueOut(Out):
    name: str
    paused: HoldOut | None
    workers: int
    totals: dict[str, int]


class FindingOut(Out):
    connection: str = Field("default", description="Where it is; left out where there is only one.")
    level: str
    code: str
    text: str
    fix: str | None
    about: str | None
    name: str | None


class DoctorOut(Out):
    worst: str
    findings: list[FindingOut]
    triage: dict[str, dict[str, Any]]


class KindOut(Out):
    name: str
    paused: HoldOut | None
    concurrency: int | None
    rate_limit_ms: int | None
    running: int | None
    limited_by: str | None
    circuit: str | None = Field(description="The open circuit that its tasks wait for.")
    totals: dict[str, int]
    dead_letters: int
    forgotten: int = Field(description="Of its cancelled tasks: those that somebody forgot or purged.")


class CauseOut(Out):
    fingerprint: str
    status: str
    count: int
    failed: int
    share: float = Field(description="Part of all failed tasks that match, from 0 to 1.")
    at_least: bool = Field(
        description="There may be more failed tasks than were counted: filtered by scope, trace or time."
    )
    code: str
    reason: str
    failure_type: str
    message: str | None = Field(description="For operators.")
    summary: dict[str, Any] | None
    kinds: dict[str, int]
    first_seen: datetime
    last_seen: datetime
    sample_task: UUID
    trend: list[int] = Field(description="Failures per hour over the last 24 hours, the current one last.")
    note: str | None
    owner: str | None
    muted_until: datetime | None
    resolved_at: datetime | None
    resolved_by: str | None


class BreakdownOut(Out):
    tasks: int = Field(description="Tasks that are failed by it now and were looked at, those that failed last.")
    at_least: bool = Field(description="There are more of them.")
    peer: dict[str, int] = Field(description="Hosts and ports that were called. For operators.")
    scope: dict[str, int]
    group: dict[str, int]
    build: dict[str, int] = Field(description="Of the application: REDRIVE_BUILD, else its version.")


class CauseWithParts(CauseOut):
    breakdown: BreakdownOut


class CausePage(Out):
    groups: list[CauseOut]
    next_before: str | None = Field(description="Give it as `before` for the next page.")
    total: int | None = Field(description="Causes on all pages; null where they are not counted.")
    at_least: bool = Field(description="There are more causes than `total`.")
    tasks: int = Field(description="Tasks that match and are failed now, by all causes: what `share` is of.")
    more: int | None = Field(description="Causes on the pages after this one.")


class CanaryOut(Out):
    first: int
    percent: float
    then: str
    ids: list[UUID]
    passed: bool


class FailedByOut(Out):
    fingerprint: str
    code: str | None = Field(description="Null where the cause is not kept any more.")
    n: int


class RetriedOut(Out):
    """Exact, at any size: counted as the tasks move."""

    retried: int
    completed: int
    failed_again: int
    cancelled: int
    running: int
    waiting: int = Field(description="For a worker, for another attempt, or until they are resumed.")
    uncounted: int = Field(description="Retried or run by a process of an earlier version, which counted nothing.")
    retried_since: int = Field(description="Of those that failed again: retried once more by somebody.")
    causes: list[FailedByOut] = Field(description="By which they failed again: the ten by which most did.")
    number_of_causes: int
    waits_because: str | None = Field(description="Why one of those that wait does not run; null: it has its turn.")


class WorkOut(Out):
    """What a feature does piece by piece, such as the rebuild of an index."""

    feature: str
    subject: str
    unit: str = Field(description="What is counted, instead of tasks.")
    result: dict[str, Any]


class OperationOut(Out):
    id: str
    action: str
    status: str
    filter: dict[str, Any]
    actor: str
    reason: str | None
    total: int
    done: int
    skipped: int
    progress: float
    rate: float | None
    canary: CanaryOut | None
    stop_on_return: bool
    plan_token: str | None
    approval_id: str | None
    note: str | None
    work: WorkOut | None = Field(description="Of an operation of a feature; null where it is about tasks.")
    erased: dict[str, int] = Field(description="Of an erasure: how many went, by place.")
    fixed: str | None = Field(description="What was mended before, as its operator said.")
    idempotent: bool | None = Field(description="May the handlers run twice for one task, as its operator said.")
    tasks: RetriedOut | None = Field(description="Where the tasks of a retry are now. Not in lists.")
    created_at: datetime
    updated_at: datetime


class OperationPage(Out):
    operations: list[OperationOut]
    next_before: int | None


class ApprovalOut(Out):
    id: str
    state: str
    operation_id: str | None = Field(description="What begins with the approval; null of an action of a feature.")
    action: str
    title: str
    filter: dict[str, Any]
    total: int
    needed: str
    consequence: str = Field(description="What becomes of the tasks, and whether that can be taken back.")
    feature: str | None = Field(None, description="Whose action it is, where that is no operation on tasks.")
    arguments: dict[str, Any] | None = Field(None, description="And with what it is carried out.")
    page: str | None = Field(None, description="Where the console shows what it is about.")
    requested_by: str
    reason: str | None
    fixed: str | None
    idempotent: bool | None
    expires_at: datetime
    decided_by: str | None
    decision_reason: str | None
    warnings: list[ObstacleOut] = Field([], description="What would keep the tasks from running; while it is pending.")
    created_at: datetime


class ApprovalPage(Out):
    approvals: list[ApprovalOut]
    next_before: int | None


class HoldChange(Out):
    target: str
    name: str
    paused: bool
    changed: bool


class LimitsIn(In):
    concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    rate_limit_ms: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    actor: str | None = None


class ReasonIn(In):
    """Why, for the audit log. ``actor`` says who acts where there are no tokens; a token's name overrides it."""

    reason: str | None = None
    actor: str | None = None
