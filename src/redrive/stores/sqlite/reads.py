"""Everything that only looks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from redrive.kernel.machine import Held
from redrive.kernel.store import Count, GroupRow, Overview, Query, ScheduleRow
from redrive.kernel.task import AuditRow, DeadLetter, State, Task, Timeline
from redrive.stores.sql import statements
from redrive.stores.sqlite import filters, rows, tick
from redrive.stores.sqlite.clock import to_datetime
from redrive.stores.sqlite.session import Session

SQL = statements("redrive.stores.sqlite", "reads.sql")
T = TypeVar("T")


class Reads:
    """The reading half of the SQLite store. Each call sees one snapshot."""

    async def read(self, look: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def get(self, task_id: UUID) -> Task | None:
        return await self.read(lambda session: _get(session, task_id))

    async def find(self, query: Query) -> list[Task]:
        return await self.read(lambda session: _find(session, query))

    async def timeline(self, task_id: UUID) -> Timeline | None:
        return await self.read(lambda session: _timeline(session, task_id))

    async def dead_letters(self, query: Query) -> list[DeadLetter]:
        sql, args = filters.letters(query)
        found = await self.read(lambda session: _rows(session, SQL["letters"] + sql, args))
        return [rows.dead_letter(row) for row in found]

    async def groups(self, limit: int) -> list[GroupRow]:
        found = await self.read(lambda session: _rows(session, SQL["groups"], [limit]))
        return [rows.group(row) for row in found]

    async def audit(self, limit: int, action: str | None = None, actor: str | None = None) -> list[AuditRow]:
        sql, args = filters.audit(limit, action, actor)
        found = await self.read(lambda session: _rows(session, SQL["audit_log"] + sql, args))
        return [rows.audit(row) for row in found]

    async def counts(self) -> list[Count]:
        found = await self.read(lambda session: _rows(session, SQL["counts"]))
        return [
            Count(row["queue"], row["kind"], state, row[state.value])
            for row in found
            for state in State
            if row[state.value]
        ]

    async def balance(self, account: str) -> int:
        found = await self.read(lambda session: _rows(session, SQL["balance"], [account]))
        return int(found[0]["balance"]) if found else 0

    async def overview(self) -> Overview:
        return await self.read(_overview)

    async def expired(self, limit: int) -> list[Held]:
        return await self.read(lambda session: tick.expired(session, limit))

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        def look(session: Session) -> tuple[datetime, list[ScheduleRow]]:
            due = _rows(session, SQL["due_schedules"], [session.now])
            return to_datetime(session.now), [rows.schedule(row) for row in due]

        return await self.read(look)


def _rows(session: Session, sql: str, args: Sequence[Any] = ()) -> list[sqlite3.Row]:
    cursor = session.connection.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(sql, args).fetchall()


def _get(session: Session, task_id: UUID) -> Task | None:
    args = [str(task_id)]
    found = _rows(session, SQL["get_live"], args) or _rows(session, SQL["get_history"], args)
    return rows.task(found[0]) if found else None


def _find(session: Session, query: Query) -> list[Task]:
    found: list[sqlite3.Row] = []
    for name, wanted in (("find_live", filters.live(query)), ("find_history", filters.history(query))):
        if wanted is not None:
            sql, args = wanted
            found += _rows(session, SQL[name] + sql, args)
    found.sort(key=lambda row: str(row["id"]), reverse=True)
    return [rows.task(row) for row in found[: query.limit]]


def _timeline(session: Session, task_id: UUID) -> Timeline | None:
    task = _get(session, task_id)
    if task is None:
        return None
    args = [str(task_id)]
    return Timeline(
        task,
        [rows.attempt(row) for row in _rows(session, SQL["attempts"], args)],
        [rows.dead_letter(row) for row in _rows(session, SQL["letters_of"], args)],
        [rows.audit(row) for row in _rows(session, SQL["audit_of"], args)],
    )


def _overview(session: Session) -> Overview:
    return Overview(
        to_datetime(session.now),
        [rows.hold(row) for row in _rows(session, SQL["holds"])],
        [rows.limit(row) for row in _rows(session, SQL["limits"])],
        [rows.worker(row) for row in _rows(session, SQL["workers"])],
        [rows.schedule(row) for row in _rows(session, SQL["schedules"])],
    )
