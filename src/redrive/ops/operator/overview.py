"""Everything at a glance: exact totals, and the pauses, circuits, limits, workers and causes that shape them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from redrive.kernel.task import State
from redrive.kernel.wording import counted
from redrive.ops import causes, inspect, views
from redrive.ops.handler_notes import describe_stray
from redrive.ops.inspect import Stats
from redrive.ops.operator.circuits import CircuitService, CircuitView
from redrive.ops.operator.control import LimitView, PauseView
from redrive.ops.operator.declared import Given, Open, look, view_of
from redrive.ops.operator.schedules import ScheduleView, schedule_view
from redrive.ops.operator.session import Service
from redrive.ops.operator.workers import WorkerView, worker_view
from redrive.ops.views import CauseView, Seen
from redrive.ops.workers import Lost, Standing

Causes = Annotated[
    int,
    Given(
        "How many causes of failure: those by which most tasks are failed now.",
        metavar="N",
        least=0,
        most=causes.MOST_LISTED,
    ),
]


@dataclass(slots=True, frozen=True)
class CountView:
    queue: Seen[str]
    kind: Seen[str]
    state: Seen[State]
    n: Seen[int]


@dataclass(slots=True, frozen=True)
class LostView:
    """Running tasks of a queue whose worker is not heard of any more, or was started anew since."""

    worker: Seen[str]
    queue: Seen[str]
    tasks: Seen[int]
    seen_at: Annotated[datetime, Open("When the worker was heard of last.")]
    restarted: Seen[bool]
    leases_end: Annotated[datetime, Open("The last of them.")]
    text: Annotated[str, Open("All of this in a sentence.")]


@dataclass(slots=True, frozen=True)
class StrayView:
    """A handler that runs on though it was given up."""

    task_id: Seen[str]
    kind: Seen[str]
    worker_id: Seen[str]
    since: Seen[str]
    isolation: Seen[str]
    text: Annotated[str, Open("The same in a sentence.")]


@dataclass(slots=True, frozen=True)
class OverviewView:
    """Totals are exact; what a pause holds back counts as paused."""

    now: Seen[datetime]
    totals: Annotated[dict[str, int], Open("Tasks by state.")]
    forgotten: Annotated[int, Open("Of the cancelled tasks: those that somebody forgot or purged.")]
    queues: Annotated[dict[str, dict[str, int]], Open("The same by queue.")]
    kinds: Annotated[dict[str, dict[str, int]], Open("The same by kind.")]
    counts: Annotated[list[CountView], Open("The same by queue and kind.")]
    holds: Annotated[list[PauseView], Open("What is paused.")]
    circuits: Annotated[list[CircuitView], Open("Those that are open.")]
    limits: Seen[list[LimitView]]
    workers: Annotated[list[WorkerView], Open("Those that are not gone; what runs on each is counted by the store.")]
    lost: Seen[list[LostView]]
    still_running: Seen[list[StrayView]]
    workers_gone: Annotated[int, Open("Of the last day.")]
    fell_silent: Annotated[int, Open("Of these: without a word.")]
    failure_groups: Annotated[list[CauseView], Open("Causes by which tasks are failed now.")]
    schedules: Seen[list[ScheduleView]]


class OverviewService(Service):
    """Everything at a glance."""

    @look("GET /api/stats", command="stats")
    async def show(self, causes: Causes = 10) -> OverviewView:
        """Totals by queue and kind, pauses, limits, workers, causes of failure, schedules."""
        stats = await inspect.stats(self._store)
        circuits = await CircuitService(self._session).list() if stats.overview.circuits else []
        failing = await self._causes(causes) if causes else []
        return await asyncio.to_thread(_view, stats, circuits, failing)  # there may be many queues and kinds

    async def _causes(self, most: int) -> list[CauseView]:
        sight = self._session.sight
        found = await causes.list_causes(self._store, limit=most)
        return [CauseView(**views.cause(one, sight)) for one in found.causes]


def _view(stats: Stats, circuits: list[CircuitView], failing: list[CauseView]) -> OverviewView:
    overview = stats.overview
    workers = [worker_view(row, overview, running=stats.held_by(row)) for row in overview.workers]
    gone = [one for one in workers if one.standing is Standing.GONE]
    return OverviewView(
        now=overview.now,
        totals=stats.totals(),
        forgotten=sum(stats.forgotten().values()),
        queues=stats.by("queue"),
        kinds=stats.by("kind"),
        counts=[view_of(CountView, one) for one in stats.shown],
        holds=[view_of(PauseView, row) for row in overview.holds],
        circuits=[one for one in circuits if one.open],
        limits=[view_of(LimitView, row) for row in overview.limits if row.limited],
        workers=[one for one in workers if one.standing is not Standing.GONE],
        lost=[_lost(one, overview.now) for one in stats.lost()],
        still_running=[view_of(StrayView, one, text=describe_stray(one, overview.now)) for one in stats.strays],
        workers_gone=len(gone),
        fell_silent=sum(not one.stopping for one in gone),
        failure_groups=failing,
        schedules=[schedule_view(row, overview) for row in overview.schedules],
    )


def _lost(one: Lost, now: datetime) -> LostView:
    verb = "is" if one.tasks == 1 else "are"
    text = f"{counted(one.tasks)} of queue {one.queue} {verb} held by worker {one.worker.id}, which"
    return LostView(
        one.worker.id,
        one.queue,
        one.tasks,
        one.worker.seen_at,
        one.restarted,
        one.last_ends,
        f"{text} {one.worker_told(now)}: {one.return_told(now)}",
    )
