"""Everything that only looks."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from redrive.ids import time_of
from redrive.kernel.store import Count, GroupRow, Overview, Query
from redrive.kernel.task import HISTORY, LIVE, AuditRow, DeadLetter, State, Task, Timeline
from redrive.stores import rows
from redrive.stores.postgres.pool import Pool
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
_ERROR_FILTERS = ("error_code", "error_reason", "fingerprint")


class Reads:
    """The reading half of the PostgreSQL store."""

    pool: Pool

    async def get(self, task_id: UUID) -> Task | None:
        async def look(connection: Any) -> Any:
            row = await connection.fetchrow(SQL["get_live"], task_id)
            row = row or await connection.fetchrow(SQL["get_history"], task_id, time_of(task_id))
            # The id's time is the producer's clock, which may be ahead of ours: before saying no, look everywhere.
            return row or await connection.fetchrow(SQL["get_history"], task_id, None)

        # One snapshot: a task on its way from the live table to history is seen in one of them.
        row = await self._snapshot(look)
        return None if row is None else rows.task(row)

    async def find(self, query: Query) -> list[Task]:
        async def look(connection: Any) -> list[Any]:
            return await _find_live(connection, query) + await _find_history(connection, query)

        found = {row["id"]: row for row in reversed(await self._snapshot(look))}
        newest = sorted(found.values(), key=lambda row: row["id"].int, reverse=True)
        return [rows.task(row) for row in newest[: query.limit]]

    async def timeline(self, task_id: UUID) -> Timeline | None:
        task = await self.get(task_id)
        if task is None:
            return None
        return Timeline(
            task,
            [rows.attempt(row) for row in await self._rows("attempts", task_id)],
            [rows.dead_letter(row) for row in await self._rows("letters_of", task_id)],
            [rows.audit(row) for row in await self._rows("audit_of", task_id)],
        )

    async def dead_letters(self, query: Query) -> list[DeadLetter]:
        found = await self._rows(
            "letters", query.kind, query.queue, query.group, query.scope, query.trace_id, query.error_code,
            query.error_reason, query.fingerprint, query.before, query.limit,
        )  # fmt: skip
        return [rows.dead_letter(row) for row in found]

    async def groups(self, limit: int) -> list[GroupRow]:
        return [rows.group(row) for row in await self._rows("groups", limit)]

    async def audit(self, limit: int, action: str | None = None, actor: str | None = None) -> list[AuditRow]:
        return [rows.audit(row) for row in await self._rows("audit_log", limit, action, actor)]

    async def counts(self) -> list[Count]:
        found = await self._rows("counts")
        return [
            Count(row["queue"], row["kind"], state, row[state.value])
            for row in found
            for state in State
            if row[state.value]
        ]

    async def balance(self, account: str) -> int:
        found = await self._rows("balance", account)
        return found[0]["balance"] if found else 0

    async def overview(self) -> Overview:
        async def look(connection: Any) -> list[Any]:
            return [await connection.fetch(SQL[name]) for name in ("now", "holds", "limits", "workers", "schedules")]

        now, holds, limits, workers, schedules = await self._snapshot(look)
        return Overview(
            now[0][0], [rows.hold(r) for r in holds], [rows.limit(r) for r in limits],
            [rows.worker(r) for r in workers], [rows.schedule(r) for r in schedules],
        )  # fmt: skip

    async def _rows(self, name: str, *args: Any) -> list[Any]:
        found: list[Any] = await self.pool.run(lambda connection: connection.fetch(SQL[name], *args))
        return found

    async def _snapshot(self, work: Any) -> Any:
        async with self.pool.transaction(isolation="repeatable_read", readonly=True) as connection:
            return await work(connection)


async def _find_live(connection: Any, query: Query) -> list[Any]:
    states = [state.value for state in query.states if state in LIVE]
    if query.states and not states:
        return []
    found: list[Any] = await connection.fetch(
        SQL["find_live"], states or None, query.kind, query.queue, query.group, query.scope, query.trace_id,
        query.error_code, query.error_reason, query.fingerprint, query.before, query.limit,
    )  # fmt: skip
    return found


async def _find_history(connection: Any, query: Query) -> list[Any]:
    states = [state.value for state in query.states if state in HISTORY]
    # Finished tasks carry no error: a filter on one cannot match them.
    if (query.states and not states) or any(getattr(query, name) is not None for name in _ERROR_FILTERS):
        return []
    found: list[Any] = await connection.fetch(
        SQL["find_history"], states or None, query.kind, query.queue, query.group, query.scope, query.trace_id,
        query.before, query.limit,
    )  # fmt: skip
    return found
