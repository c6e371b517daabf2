"""Finds out what became of the tasks that an operation retried: that all are queued again says nothing about it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from uuid import UUID

from redrive.kernel.audit import AuditFilter
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action, Operation
from redrive.kernel.ports.store import Store, WorkerRow
from redrive.kernel.ports.tasks import get_task
from redrive.kernel.task import WAITING, State
from redrive.ops.why import Reason, why
from redrive.ops.workers import drivers

# Of operations with more tasks only those are counted that failed again, for which there is an index.
MOST_TASKS_LOOKED_AT = 1000
FIRST_TASKS_NAMED = 3
TASKS_WHOSE_QUEUES_COUNT = 100


@dataclass(slots=True, frozen=True)
class Retried:
    """Where the tasks of a retry are now. ``counted`` is False for a large one: then only ``failed_again`` is known.
    ``again``: the first of those that failed again; ``oldest``: the live worker of their queues that then has run for
    longest, and may still run the old code. ``waits``: why the first of those that wait does not run, if there is more
    to say than that its turn comes."""

    retried: int
    failed_again: int
    counted: bool = True
    completed: int = 0
    cancelled: int = 0
    running: int = 0
    waiting: int = 0  # for a worker, for another attempt, or until it is resumed
    again: tuple[UUID, ...] = ()
    oldest: WorkerRow | None = None
    waits: Reason | None = None

    @property
    def unfinished(self) -> int:
        return self.running + self.waiting

    @property
    def numbers(self) -> dict[str, int | None]:
        """Returns the numbers by name; None where nobody has counted."""
        names = ("completed", "cancelled", "running", "waiting")
        counts = {name: getattr(self, name) if self.counted else None for name in names}
        return {"retried": self.retried, "failed_again": self.failed_again, **counts}

    @property
    def told(self) -> str:
        """Returns it in words, such as "5 retried: 3 completed, 1 failed again, 1 still runs"."""
        known = [
            (self.completed, "completed"),
            (self.failed_again, "failed again"),
            (self.cancelled, "cancelled"),
            (self.running, "still runs" if self.running == 1 else "still run"),
            (self.waiting, "waits to run" if self.waiting == 1 else "wait to run"),
        ]
        if not self.counted:
            known = [(self.failed_again, "failed again by now")]
        parts = [f"{number:,} {what}" for number, what in known if number]
        missing = self.retried - sum(number for number, _ in known)
        if self.counted and missing > 0:
            parts.append(f"{missing:,} not kept any more")
        return f"{self.retried:,} retried" + (f": {', '.join(parts)}" if parts else "")


async def retried(store: Store, operation: Operation) -> Retried | None:
    """Returns where the tasks of an operation are now; None of one that does not retry."""
    if operation.action is not Action.RETRY:
        return None
    again = FailureFilter(bulk_id=operation.id)
    if operation.done > MOST_TASKS_LOOKED_AT:
        found = Retried(operation.done, await store.count_failed(again), counted=False)
    else:
        found = await _looked_at(store, operation)
    if not found.failed_again:
        return found
    first = [one.id for one in await store.failed_ids(again, limit=TASKS_WHOSE_QUEUES_COUNT)]
    queues = {one.queue for one in (await store.statuses(first)).values()}
    serving = [one for one in drivers(await store.overview()) if queues.intersection(one.queues)]
    oldest = min(serving, key=lambda one: one.started_at, default=None)
    return replace(found, again=tuple(first[:FIRST_TASKS_NAMED]), oldest=oldest)


async def _looked_at(store: Store, operation: Operation) -> Retried:
    items = AuditFilter(bulk_id=operation.id, action=f"{operation.action.audited}_ITEM")
    rows = await store.audit(items, limit=MOST_TASKS_LOOKED_AT, documents=0)
    statuses = await store.statuses([row.task_id for row in rows if row.task_id is not None])
    number = Counter(one.state for one in statuses.values())
    # The rows come newest first.
    left = [row.task_id for row in rows if row.task_id in statuses and statuses[row.task_id].state in WAITING]
    return Retried(
        operation.done,
        number[State.FAILED],
        completed=number[State.COMPLETED],
        cancelled=number[State.CANCELLED],
        running=number[State.RUNNING],
        waiting=number[State.QUEUED] + number[State.DELAYED] + number[State.PAUSED],
        waits=await _reason(store, left[-1]) if left else None,
    )


async def _reason(store: Store, task_id: UUID | None) -> Reason | None:
    """Returns the strongest reason why a task does not run; None where it only waits for its turn."""
    task = None if task_id is None else await get_task(store, task_id)
    reasons = [] if task is None else await why(store, task)
    return next((one for one in reasons if one.code != "ready"), None)
