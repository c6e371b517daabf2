"""Finds out what became of the tasks that an operation retried: that all are queued again says nothing about it.

It is counted as the tasks move, with the totals, so that it is exact at any size, while it runs and at its end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from uuid import UUID

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action, Operation
from redrive.kernel.ports.store import CauseQuery, Query, Store, WorkerRow
from redrive.kernel.reads import CauseRow
from redrive.kernel.task import WAITING, State, Task
from redrive.ops.why import Reason, why
from redrive.ops.workers import drivers

FIRST_TASKS_NAMED = 3
MOST_CAUSES_NAMED = 10
TASKS_WHOSE_QUEUES_COUNT = 100


@dataclass(slots=True, frozen=True)
class FailedBy:
    """How many tasks of a retry failed again by one cause; ``row`` is None where that is not kept any more."""

    fingerprint: str
    n: int
    row: CauseRow | None = None

    @property
    def code(self) -> str:
        return self.fingerprint if self.row is None else self.row.code


@dataclass(slots=True, frozen=True)
class RetryOutcome:
    """Where the tasks of a retry are now. ``causes``: those by which most failed again, of ``number_of_causes``;
    ``retried_since``: how many of those that failed again somebody has retried since. ``uncounted``: tasks of which
    nothing is known, because a process of an earlier version retried or ran them.
    ``again``: the first of those that failed again; ``oldest``: the live worker of their queues that then has run for
    longest, and may still run the old code. ``waits``: why one of those that wait does not run, if there is more to
    say than that its turn comes."""

    retried: int
    failed_again: int
    completed: int = 0
    cancelled: int = 0
    running: int = 0
    waiting: int = 0  # for a worker, for another attempt, or until it is resumed
    uncounted: int = 0
    retried_since: int = 0
    causes: tuple[FailedBy, ...] = ()
    number_of_causes: int = 0
    again: tuple[UUID, ...] = ()
    oldest: WorkerRow | None = None
    waits: Reason | None = None

    @property
    def unfinished(self) -> int:
        return self.running + self.waiting

    @property
    def numbers(self) -> dict[str, int]:
        """Returns the numbers by name."""
        names = (
            "retried",
            "completed",
            "failed_again",
            "cancelled",
            "running",
            "waiting",
            "uncounted",
            "retried_since",
        )
        return {name: getattr(self, name) for name in names}

    @property
    def text(self) -> str:
        """Returns it in words, such as "5 retried: 3 completed, 1 failed again, 1 still runs"."""
        since = f" ({self.retried_since:,} of these retried since)" if self.retried_since else ""
        known = [
            (self.completed, "completed"),
            (self.failed_again, f"failed again{since}"),
            (self.cancelled, "cancelled"),
            (self.running, "still runs" if self.running == 1 else "still run"),
            (self.waiting, "waits to run" if self.waiting == 1 else "wait to run"),
            (self.uncounted, "not counted, by a process of an earlier version"),
        ]
        parts = [f"{number:,} {what}" for number, what in known if number]
        return f"{self.retried:,} retried" + (f": {', '.join(parts)}" if parts else "")


async def retried(store: Store, operation: Operation) -> RetryOutcome | None:
    """Returns where the tasks of an operation are now; None of one that does not retry."""
    if operation.action is not Action.RETRY:
        return None
    found = await _counted(store, operation)
    if found.unfinished:
        found = await _with_obstacle(store, operation, found)
    if not found.failed_again:
        return found
    which = FailureFilter(bulk_id=operation.id)
    first = [one.id for one in await store.failed_ids(which, limit=TASKS_WHOSE_QUEUES_COUNT)]
    queues = {one.queue for one in (await store.statuses(first)).values()}
    serving = [one for one in drivers(await store.overview()) if queues.intersection(one.queues)]
    oldest = min(serving, key=lambda one: one.started_at, default=None)
    return replace(found, again=tuple(first[:FIRST_TASKS_NAMED]), oldest=oldest)


async def _counted(store: Store, operation: Operation) -> RetryOutcome:
    counts, causes = Counter[str](), Counter[str]()
    for one in await store.retry_counts(operation.id):
        counts[one.outcome] += one.n
        if one.outcome == State.FAILED:
            causes[one.cause] += one.n
    most = causes.most_common(MOST_CAUSES_NAMED)
    rows = (
        {row.fingerprint: row for row in await store.causes(CauseQuery(fingerprints=[name for name, _ in most]))}
        if most
        else {}
    )
    # A piece may have landed between the look at the operation and this one.
    number = max(operation.done, counts["retried"])
    ended = {name: counts[name] for name in ("completed", "failed", "cancelled")}
    running = max(counts["running"], 0)
    return RetryOutcome(
        number,
        ended["failed"],
        completed=ended["completed"],
        cancelled=ended["cancelled"],
        running=running,
        waiting=max(counts["retried"] - running - sum(ended.values()), 0),
        uncounted=number - counts["retried"],
        retried_since=counts["again"],
        causes=tuple(FailedBy(name, n, rows.get(name)) for name, n in most),
        number_of_causes=len(causes),
    )


async def _with_obstacle(store: Store, operation: Operation, found: RetryOutcome) -> RetryOutcome:
    """Adds why one of those that wait does not run: mostly that holds up the others, too. Where none is there any more,
    they ended in a process of an earlier version, which counts nothing."""
    if waiting := await store.find(Query(WAITING, bulk_id=operation.id, limit=1)):
        return replace(found, waits=await _reason(store, waiting[0]))
    if await store.find(Query((State.RUNNING,), bulk_id=operation.id, limit=1, brief=True)):
        return found
    if await _counted(store, operation) != found:
        return found  # they have just ended
    return replace(found, waiting=0, running=0, uncounted=found.uncounted + found.unfinished)


async def _reason(store: Store, task: Task) -> Reason | None:
    """Returns the strongest reason why a task does not run; None where it only waits for its turn."""
    return next((one for one in await why(store, task) if one.code != "ready"), None)
