"""Schedules: list, show, run now, pause, resume."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from redrive.errors import ScheduleUnknown
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.payload import JsonText
from redrive.kernel.ports.store import Overview, ScheduleRow
from redrive.kernel.task import NewTask, Task, check_name
from redrive.kernel.wording import span
from redrive.ops import actions
from redrive.ops.operator.control import PauseChange, PauseView
from redrive.ops.operator.declared import Closed, Given, Open, Reason, action, look, view_of
from redrive.ops.operator.session import Service

Name = Annotated[str, Given("The schedule.", metavar="NAME", check=partial(check_name, what="schedule"))]
Once = Annotated[
    str | None,
    Given(
        "Any text of your own: asked again with the same one, it returns the task that was made before.",
        metavar="TEXT",
        once=True,
    ),
]


def _next(one: ScheduleView, now: datetime) -> str:
    """Returns when it runs next; that it does not while it is paused."""
    if one.paused is not None:
        return "paused"
    return f"in {span(one.next_at - now)}" if one.next_at > now else f"{span(now - one.next_at)} overdue"


@dataclass(slots=True, frozen=True)
class ScheduleView:
    """A schedule that an application has declared, and whether it is paused."""

    name: Annotated[str, Open(column="name")]
    kind: Annotated[str, Open(column="kind")]
    queue: Annotated[str, Open(column="queue")]
    cron: Annotated[str, Open(column="cron")]
    timezone: Annotated[str, Open(column="zone")]
    missed: Annotated[str, Open("What becomes of runs that nobody was there for.")]
    next_at: Annotated[datetime, Open(column="next", cell=_next)]
    last_at: Annotated[datetime | None, Open(column="last")]
    paused: Annotated[PauseView | None, Open("By whom, and why.")]
    owner: Annotated[str, Open("The application that declared it.")]
    priority: Annotated[int, Open("Of its tasks.")]
    max_attempts: Annotated[int, Open("Of its tasks.")]
    payload: Annotated[Any, Closed("Of its tasks; for operators.")]


class ScheduleService(Service):
    """Periodic tasks: list them, run one now, pause and resume one."""

    @look("GET /api/schedules", empty="no application has declared a schedule")
    async def list(self) -> builtins.list[ScheduleView]:
        """Periodic tasks with their next and last runs, by name."""
        overview = await self._store.overview()
        return [schedule_view(row, overview) for row in sorted(overview.schedules, key=lambda row: row.name)]

    @look("GET /api/schedules/{name}")
    async def show(self, name: Name) -> ScheduleView:
        """One schedule."""
        overview = await self._store.overview()
        return schedule_view(_row(overview, name), overview)

    @action(
        "POST /api/schedules/{name}/run",
        command="run",
        said="schedule {name} runs now, beside its plan: {done.id} ({done.kind} in queue {done.queue})",
        page="/tasks/{done.id}",
        status=201,
    )
    async def run_now(self, name: Name, reason: Reason = None, once: Once = None) -> Task:
        """Enqueue one task of a schedule now, beside its plan: the planned runs stay as they are."""
        row = _row(await self._store.overview(), name)
        new = NewTask(
            new_id(),
            row.kind,
            row.queue,
            row.payload,
            priority=row.priority,
            max_attempts=row.max_attempts,
            scope=f"schedule:{row.name}",
            idempotency_key=None if once is None else f"run:{row.name}:{once}",
        )
        note = Audit(self._who, "SCHEDULE_RUN", reason, new.id, target=f"schedule:{name}")
        applied = await self._store.apply(
            Commit(enqueues=[new], conclusion=lambda done: [note] if done.enqueued[0].created else [])
        )
        return await actions.require(self._store, applied.enqueued[0].id, self._session.documents)

    @action("POST /api/schedules/{name}/pause", said="schedule {name} is paused")
    async def pause(self, name: Name, reason: Reason = None) -> PauseChange:
        """Leave out the runs that are planned from now on, until it is resumed."""
        return await self._turn(name, True, reason)

    @action("POST /api/schedules/{name}/resume", said="schedule {name} is not paused")
    async def resume(self, name: Name, reason: Reason = None) -> PauseChange:
        """Let the planned runs of a paused schedule come again."""
        return await self._turn(name, False, reason)

    async def _turn(self, name: str, on: bool, reason: str | None) -> PauseChange:
        _row(await self._store.overview(), name)
        changed = await actions.hold(self._store, "schedule", name, actor=self._who, reason=reason, on=on)
        return PauseChange("schedule", name, on, changed)


def _row(overview: Overview, name: str) -> ScheduleRow:
    found = next((row for row in overview.schedules if row.name == name), None)
    if found is None:
        listed = ", ".join(sorted(row.name for row in overview.schedules)) or "none yet"
        raise ScheduleUnknown(f"there is no schedule {name!r}", hint=f"schedules: {listed}")
    return found


def schedule_view(row: ScheduleRow, overview: Overview) -> ScheduleView:
    paused = overview.pause_of("schedule", row.name)
    return view_of(
        ScheduleView,
        row,
        paused=None if paused is None else view_of(PauseView, paused),
        payload=None if row.payload is None else JsonText(row.payload),
    )
