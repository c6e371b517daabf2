"""Workers: list, show, drain."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from redrive.errors import InvalidInput, NotFound
from redrive.kernel.handler_notes import Stray
from redrive.kernel.ports.store import Overview, Query, WorkerRow
from redrive.kernel.task import State, Task
from redrive.ops import actions
from redrive.ops.access import Role
from redrive.ops.handler_notes import strays
from redrive.ops.operator.declared import Given, Open, Reason, action, look, view_of
from redrive.ops.operator.session import Service
from redrive.ops.workers import OUTSIDE, Standing, standing

RUNNING_SHOWN = 500
Id = Annotated[str, Given("The worker, as redrive workers names it.", metavar="ID")]


def _state(one: WorkerView, _: datetime) -> str:
    if one.drain_at is not None and one.alive:
        return "draining"
    stalled = f", loop stalled for {one.stalled:.0f} s" if one.stalled else ""
    return f"{one.standing.value}{stalled}"


def _runs(one: WorkerView, _: datetime) -> str:
    return f"{one.running}/{one.concurrency}"


def _pid(one: WorkerView, _: datetime) -> str:
    return str(one.pid)  # a name, and no number to compare


@dataclass(slots=True, frozen=True)
class WorkerView:
    """A worker that was seen within the last day, and how it is."""

    id: Annotated[str, Open(column="worker")]
    standing: Annotated[
        Standing, Open("alive, stopping, silent (its heartbeat is overdue) or gone.", column="state", cell=_state)
    ]
    alive: Annotated[bool, Open()]
    queues: Annotated[tuple[str, ...], Open(column="queues")]
    running: Annotated[int, Open(column="runs", cell=_runs)]
    concurrency: Annotated[int, Open("Tasks that it runs at once.")]
    host: Annotated[str, Open(column="host")]
    pid: Annotated[int, Open(column="pid", cell=_pid)]
    started_at: Annotated[datetime, Open()]
    seen_at: Annotated[datetime, Open(column="seen")]
    version: Annotated[str, Open("Of redrive.", column="version")]
    build: Annotated[str | None, Open("Of the application: REDRIVE_BUILD, else its version.", column="build")]
    stopping: Annotated[bool, Open("It takes nothing new.")]
    stalled: Annotated[float, Open("Seconds that its event loop had not answered when it was last heard of.")]
    drain_at: Annotated[datetime | None, Open("When somebody asked it to end.")]
    every: Annotated[float, Open("Seconds between two of its heartbeats.")]
    hears: Annotated[bool, Open("Whether it hears of requests to end: workers of old versions do not.")]
    dead: Annotated[bool, Open("Others declared it dead, and it has not been heard of since.")]


@dataclass(slots=True, frozen=True)
class Crew:
    """A worker with some of the tasks that it runs, the youngest first, and handlers that run on though they were given
    up."""

    row: WorkerRow
    standing: Standing
    running: list[Task]
    strays: list[Stray]


@dataclass(slots=True, frozen=True)
class DrainChange:
    """Workers that were asked to end just now, and those that had been asked before."""

    asked: Annotated[list[str], Open()]
    already: Annotated[list[str], Open()]

    @property
    def told(self) -> str:
        lines = [
            *(f"{name} is asked to end: it finishes what it runs" for name in self.asked),
            *(f"{name} was asked before" for name in self.already),
        ]
        return "\n".join(lines) or "no worker is there"


class WorkerService(Service):
    """Workers: list them, have them end."""

    @look("GET /api/workers", empty="no worker was seen within the last day")
    async def list(self) -> builtins.list[WorkerView]:
        """Workers that were seen within the last day, what they serve and how they are."""
        overview = await self._store.overview()
        return [worker_view(row, overview) for row in overview.workers]

    @look("GET /api/workers/{worker}")
    async def show(self, worker: Id) -> WorkerView:
        """One worker."""
        overview = await self._store.overview()
        return worker_view(_row(overview, worker), overview)

    @action("POST /api/workers/{worker}/drain", said="{done.told}")
    async def drain(self, worker: Id, reason: Reason = None) -> DrainChange:
        """Have a worker claim no more, finish what it runs, and end. It hears of it within seconds, wherever it runs;
        what restarts it (systemd, Kubernetes) starts a new one."""
        row = _row(await self._store.overview(), worker)
        if row.host == OUTSIDE:
            raise InvalidInput(f"{worker} is an executor: it claims over HTTP, and ends when whoever runs it says so")
        if not row.hears:
            raise InvalidInput(f"worker {worker} does not hear of requests: its version is too old")
        return await self._drain([worker], reason)

    @action("POST /api/workers/drain", said="{done.told}")
    async def drain_all(self, reason: Reason = None) -> DrainChange:
        """Have every worker claim no more, finish what it runs, and end. Each hears of it within seconds."""
        overview = await self._store.overview()
        ends = (Standing.ALIVE, Standing.SILENT)
        there = [row for row in overview.workers if row.host != OUTSIDE and row.hears]
        return await self._drain([row.id for row in there if standing(row, overview.now) in ends], reason)

    async def _drain(self, workers: builtins.list[str], reason: str | None) -> DrainChange:
        return DrainChange(*await actions.drain(self._store, workers, actor=self._who, reason=reason))

    async def fleet(self) -> builtins.list[Crew]:
        """Returns workers that were seen within the last day, each with some of the tasks that it runs."""
        self._session.may(Role.VIEWER)
        overview = await self._store.overview()
        running = await self._store.find(Query((State.RUNNING,), limit=RUNNING_SHOWN, brief=True))
        left = await strays(self._store, overview)
        return [
            Crew(
                row,
                standing(row, overview.now),
                [task for task in running if task.worker_id == row.id],
                [stray for stray in left if stray.worker_id == row.id],
            )
            for row in overview.workers
        ]


def _row(overview: Overview, worker: str) -> WorkerRow:
    found = next((row for row in overview.workers if row.id == worker), None)
    if found is None:
        raise NotFound(f"there is no worker {worker!r}", hint="redrive workers lists them")
    return found


def worker_view(row: WorkerRow, overview: Overview, **more: Any) -> WorkerView:
    how = standing(row, overview.now)
    return view_of(WorkerView, row, standing=how, alive=how is Standing.ALIVE, **more)
