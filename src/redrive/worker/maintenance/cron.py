"""Enqueues periodic tasks: once across the fleet, also for runs that were missed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING

from redrive.handlers.cron import next_after
from redrive.handlers.new_task import stamp
from redrive.ids import new_id
from redrive.kernel.commit import Commit, Fire
from redrive.kernel.ports.store import ScheduleRow, Store
from redrive.kernel.task import NewTask

if TYPE_CHECKING:
    from redrive.observe.tracing import Tracing

logger = logging.getLogger("redrive.maintenance")
MOST_MISSED_RUNS_FIRED = 1000


async def fire_schedules(
    store: Store, worker_id: str, stopping: Callable[[], bool], tracing: Tracing | None = None
) -> None:
    """Enqueues what is due by the schedules, and plans their next runs."""
    now, due = await store.due_schedules()
    paused = await _paused(store) if due else set()
    for row in due:
        times, following = planned(row, now)
        if row.name in paused:  # what would have run meanwhile is left out, also when it is resumed
            times = []
        tasks = tuple(_task(row, at) for at in times)
        with nullcontext() if tracing is None or not tasks else tracing.sending(tasks, root=True) as trace:
            if trace is not None:
                stamp(tasks, trace)
            applied = await store.apply(Commit(fires=[Fire(row.name, row.next_at, following, tasks)]))
        if row.name in applied.fired:
            logger.info(
                "schedule %s fired %d task(s)",
                row.name,
                len(tasks),
                extra={"event": "schedule.fired", "schedule": row.name, "tasks": len(tasks), "worker_id": worker_id},
            )


async def _paused(store: Store) -> set[str]:
    return {hold.name for hold in (await store.overview()).holds if hold.target == "schedule"}


def planned(row: ScheduleRow, now: datetime) -> tuple[list[datetime], datetime]:
    """Returns the runs that are due by ``now`` under the schedule's policy, and the next one after. A schedule that was
    fired by a clock that was ahead has none that are due: its next run is planned anew."""
    if row.next_at > now:
        return [], next_after(row.cron, row.timezone, now)
    times = [row.next_at]
    following = next_after(row.cron, row.timezone, row.next_at)
    while following <= now and len(times) < MOST_MISSED_RUNS_FIRED:
        times.append(following)
        following = next_after(row.cron, row.timezone, following)
    if following <= now:
        # Too many were missed to list: the rest is skipped, and said so by the gap in the tasks' scope.
        following = next_after(row.cron, row.timezone, now)
    match row.missed:
        case "all":
            return times, following
        case "skip":
            late = (now - times[-1]).total_seconds() > 60
            return ([] if late else times[-1:]), following
        case _:
            return times[-1:], following


def _task(row: ScheduleRow, at: datetime) -> NewTask:
    # The key makes a planned run one task for good, whoever fires it and however often.
    key = f"schedule:{row.name}:{at.isoformat()}"
    return NewTask(
        new_id(),
        row.kind,
        row.queue,
        row.payload,
        priority=row.priority,
        max_attempts=row.max_attempts,
        idempotency_key=key,
        scope=f"schedule:{row.name}",
    )
