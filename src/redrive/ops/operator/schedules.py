"""Schedules: list, run now, pause, resume."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from redrive.errors import ScheduleUnknown
from redrive.ids import new_id
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.ports.store import HoldRow, ScheduleRow
from redrive.kernel.task import NewTask, Task, check_name, check_text
from redrive.ops import actions
from redrive.ops.access import Role
from redrive.ops.operator.session import Service


@dataclass(slots=True, frozen=True)
class Schedule:
    row: ScheduleRow
    paused: HoldRow | None


class ScheduleService(Service):
    async def list(self) -> builtins.list[Schedule]:
        """Returns every schedule that an application has declared, by name."""
        self._session.may(Role.VIEWER)
        overview = await self._store.overview()
        return [
            Schedule(row, overview.pause_of("schedule", row.name))
            for row in sorted(overview.schedules, key=lambda row: row.name)
        ]

    async def show(self, name: str) -> ScheduleRow:
        self._session.may(Role.VIEWER)
        return await self._row(name)

    async def run_now(self, name: str, reason: str | None = None, once: str | None = None) -> Task:
        """Enqueues one task of a schedule, beside its plan: the planned runs stay as they are. Asked again with the
        same ``once``, it returns the task that was made before."""
        who = self._session.may(Role.OPERATOR)
        row = await self._row(name)
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
        told = Audit(who, "SCHEDULE_RUN", check_text(reason, "reason"), new.id, target=f"schedule:{name}")
        applied = await self._store.apply(
            Commit(enqueues=[new], conclusion=lambda done: [told] if done.enqueued[0].created else [])
        )
        return await actions.require(self._store, applied.enqueued[0].id, self._session.documents)

    async def pause(self, name: str, reason: str | None = None) -> bool:
        """Leaves out the runs that are planned from now on, until it is resumed. False when it was paused already."""
        return await self._turn(name, True, reason)

    async def resume(self, name: str, reason: str | None = None) -> bool:
        return await self._turn(name, False, reason)

    async def _turn(self, name: str, on: bool, reason: str | None) -> bool:
        who = self._session.may(Role.OPERATOR)
        await self._row(name)
        return await actions.hold(self._store, "schedule", name, actor=who, reason=reason, on=on)

    async def _row(self, name: str) -> ScheduleRow:
        check_name(name, "schedule")
        rows = (await self._store.overview()).schedules
        found = next((row for row in rows if row.name == name), None)
        if found is None:
            listed = ", ".join(sorted(row.name for row in rows)) or "none yet"
            raise ScheduleUnknown(f"there is no schedule {name!r}", hint=f"schedules: {listed}")
        return found
