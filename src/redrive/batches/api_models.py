"""What goes over the wire of ``/api/batches``: the same documents for batches of both sorts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from redrive.api.models import FIRST_FAULT, ReasonOut
from redrive.api.operations import BulkIn
from redrive.feature.api import In, Out
from redrive.ops.operator.operations import BegunView
from redrive.ops.views import Open


class RemotePartOut(Out):
    """What a batch has whose items are jobs at a provider; money as the ledger has it."""

    provider: str
    account: str | None
    price: int
    round: int
    processing: int = Field(description="Items that are with the provider.")
    unknown: int = Field(description="Items that have ended without the provider's word.")
    uncharged: int = Field(description="Items that ended here, whose jobs ran all the same: nobody has paid for them.")
    max_in_flight: int | None = Field(description="So many of its jobs run at once; null: any number.")
    frozen: int
    captured: int
    released: int
    webhook_url: str | None
    reason: str | None
    dispatched_at: datetime | None
    settled_at: datetime | None
    pruned_at: datetime | None = Field(description="Since when it is being removed: nobody acts on it any more.")


class BatchOut(Out):
    """A batch with the counts of its items; ``pending`` ones wait or run."""

    id: str
    name: str | None
    key: str | None
    meta: Any
    scope: str | None
    state: str
    open: bool
    total: int
    pending: int
    completed: int
    failed: int
    cancelled: int
    created_at: datetime
    created_by: str
    ended_at: datetime | None
    succeeded_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None
    cancel_reason: str | None
    cancel_operation: str | None
    fault: str | None
    remote: RemotePartOut | None = Field(description="Null where its items are tasks.")


class ShownBatchOut(BatchOut):
    waits_for: list[ReasonOut] = Field(description="What it waits for, and each of its items that has not ended.")


class BatchPageOut(Out):
    batches: list[BatchOut]
    next_before: str | None


class JobOut(Out):
    job: str | None
    progress: float | None
    poll_count: int
    last_poll_at: datetime | None
    late: bool
    unknown: bool = Field(description="It has ended without the provider's word: nobody knows what became of its job.")
    said: str | None = Field(description="What the provider said of its job after that.")
    waits_for: str | None = Field(description="What it waits for; null when it has ended.")


class ItemOut(Out):
    """An item: a task, or a job at a provider, which has a task when its turn has come."""

    n: int | None
    state: str
    task_id: str | None
    kind: str | None
    payload: Any
    result: Any
    error_code: str | None
    error_message: str | None
    failure_type: str | None
    attempt_count: int | None
    started_at: datetime | None
    ended_at: datetime | None
    remote: JobOut | None


class ItemPageOut(Out):
    items: list[ItemOut]
    next_after: str | None


class CauseOut(Out):
    fingerprint: str
    failed: int
    code: str
    failure_type: str


class TrendOut(Out):
    """When they failed: how many by each type in each of thirty equal stretches of time."""

    since: datetime
    step_seconds: float
    by_type: dict[str, list[int]]


class FailuresOut(Out):
    by_type: dict[str, int]
    by_code: dict[str, int]
    causes: list[CauseOut]
    trend: TrendOut | None = Field(description="Null where nothing is failed.")


@dataclass(slots=True, frozen=True, kw_only=True)
class ActedView(BegunView):
    """What was begun: of a batch of tasks an operation; a remote one has changed itself."""

    charge: Annotated[int | None, Open("What is frozen anew for the items, at a provider.")]
    skipped: Annotated[int, Open("Failed items that are not started again: their jobs ran all the same, or may.")]
    notes: Annotated[list[str], Open("Why some are skipped or only looked at, each with the command for them.")]
    batch: BatchOut


class BatchRetryIn(BulkIn):
    dry_run: bool = False


class CancelIn(In):
    reason: str | None = None
    actor: str | None = None
    dry_run: bool = False


class ChargeIn(In):
    items: list[int] = Field(default=[], max_length=1000, description="Their places, from 1; none: all that ran.")
    reason: str | None = None
    actor: str | None = None
    dry_run: bool = False


class ReconcileIn(In):
    reason: str | None = None
    actor: str | None = None
    accept: bool = Field(default=False, description="Ask nobody: accept that it stays unknown. Needs a reason.")


class ReconcileOut(Out):
    """The task that asks: what came of it is its result, under ``/api/tasks/ID``."""

    task: str | None = Field(description="Null where it was accepted.")
    items: int = Field(description="Items that it asks about, or that were accepted, up to 10,000.")


class TaskIn(In):
    """The arguments of ``App.enqueue``."""

    kind: str
    payload: Any = None
    queue: str | None = None
    priority: int | None = None
    delay: float | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    group: str | None = None
    scope: str | None = None
    idempotency_key: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in TaskIn.model_fields}


class BatchIn(In):
    """What a batch is to be: of ``tasks``, or of ``items`` (any JSON values) that are jobs at a ``provider``."""

    tasks: Annotated[list[TaskIn], FIRST_FAULT] | None = None
    on_complete: TaskIn | None = None
    on_success: TaskIn | None = None
    items: list[Any] | None = None
    provider: str | None = None
    account: str | None = None
    price: int | None = None
    webhook_url: str | None = None
    max_in_flight: int | None = None
    name: str | None = None
    key: str | None = None
    meta: Any = None
    scope: str | None = None
