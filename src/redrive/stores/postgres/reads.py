"""Runs the statements of reads, and says which of them PostgreSQL finds its way by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from redrive.ids import time_of
from redrive.kernel.circuit import CircuitRow
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Query, ScheduleRow
from redrive.stores import reads, rows
from redrive.stores.features import Features
from redrive.stores.filters import Dialect, Filters, Where
from redrive.stores.postgres.pool import Pool, fetch, value
from redrive.stores.reads import NOW, Steps
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
CLOCK_SKEW = timedelta(days=1)
FILTERS = Filters(
    Dialect(
        mark="$",
        any_of=" and column = any ({})",
        none_of=" and (column <> all ({})) is not false",
        within=" and {} = any (array({}))",
        since=SQL["failed_since"],
        until=SQL["failed_until"],
        letters_before=SQL["letters_before"],
    )
)
T = TypeVar("T")


class Reads(reads.Reads):
    """The reading half of the PostgreSQL store."""

    texts = SQL
    filters = FILTERS
    pool: Pool
    features: Features

    async def ask(self, text: str, *args: Any) -> list[Any]:
        found: list[Any] = await self.pool.read(lambda connection: connection.fetch(text, *args))
        return found

    async def look(self, steps: Callable[[], Steps[T]]) -> T:
        return await self.pool.read(lambda connection: _follow(connection, steps()), snapshot=True)

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        text = self.features.statement(feature, statement)
        return [dict(row) for row in await self.pool.run(lambda connection: connection.fetch(text, *args))]

    def _history_from(self, task_ids: Collection[UUID]) -> Sequence[datetime | None]:
        """Partitions of days before the time in their ids are left out. That is the producer's clock, which may be
        ahead of ours: before saying no, look everywhere."""
        times = [time_of(task_id) for task_id in task_ids]
        since = None if None in times else min((time for time in times if time), default=None)
        return (since, None)

    def _finished(self, query: Query) -> Where | None:
        """No member of a join can have ended before it was made; the time in its id is its maker's clock."""
        made = None if query.join is None else time_of(UUID(query.join))
        return self.filters.history(query, None if made is None else made - CLOCK_SKEW)

    async def failed_end(
        self, which: FailureFilter, most: int | None = None, *, cancelled: bool = False
    ) -> tuple[int, int]:
        if cancelled:
            return await super().failed_end(which, cancelled=True)
        name, where = self.filters.count_failed(which)
        by_rows = name == "count_failed"

        # All moves share this lock: whoever has it alone sees every failure that has its number. Everybody waits
        # meanwhile, so it is not waited for long, and nothing is done under it that takes time.
        async def look(connection: Any) -> tuple[int, int]:
            await connection.execute(SQL["briefly"])
            await connection.execute(SQL["stop_moves"])
            end = await connection.fetchval(SQL["failed_end"])
            return end, 0 if by_rows else await connection.fetchval(SQL[name] + where.sql, *where.args)

        end, count = await self.pool.run(look, atomic=True)
        return end, await self.count_failed(which, most, end) if by_rows else count

    async def now(self) -> datetime:
        found: datetime = await self.pool.read(lambda connection: connection.fetchval(SQL["now"]))
        return found

    async def circuits(self) -> list[CircuitRow]:
        return [rows.circuit(row) for row in await fetch(self.pool, "circuits")]

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        found = await fetch(self.pool, "due_schedules")
        now = found[0]["now"] if found else await value(self.pool, "now")
        return now, [rows.schedule(row) for row in found]


async def _follow(connection: Any, steps: Steps[T]) -> T:
    """Runs the statements of a look one after the other; returns what it makes of them."""
    try:
        statement = next(steps)
        while True:
            text, args = (SQL["now"], ()) if statement is NOW else statement
            statement = steps.send(await connection.fetch(text, *args))
    except StopIteration as end:
        found: T = end.value
        return found
