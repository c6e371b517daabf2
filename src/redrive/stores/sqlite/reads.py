"""Runs the statements of reads, and says which of them SQLite finds its way by."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Query, ScheduleRow
from redrive.kernel.task import LIVE
from redrive.stores import reads, rows
from redrive.stores.features import Features
from redrive.stores.filters import DIMENSIONS, Dialect, Filters, Where, by_state, largest
from redrive.stores.reads import NOW, Steps
from redrive.stores.sql import statements
from redrive.stores.sqlite.codec import encode, typed
from redrive.stores.sqlite.session import Session, to_datetime

SQL = (
    statements("redrive.stores.sqlite", "reads.sql")
    | {name: statements("redrive.stores.sqlite", "erase.sql")[name] for name in ("personal", "erasable")}
    | {"joins": statements("redrive.stores.sqlite", "joins.sql")["joins"]}
)
FEW_OF_A_STATE = 1_000
FEW_CANCELLED = 5_000
FILTERS = Filters(
    Dialect(
        mark="?",
        any_of=" and column in (select value from json_each({}))",
        none_of=" and coalesce(column, '') not in (select value from json_each({}))",
        within=" and {} in ({})",
        since=SQL["failed_since"],
        until=SQL["failed_until"],
        letters_before=SQL["letters_before"],
        walked="+",
    )
)
T = TypeVar("T")


class Reads(reads.Reads):
    """The reading half of the SQLite store. Each call sees one snapshot."""

    texts = SQL
    filters = FILTERS
    features: Features

    async def read(self, look: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def ask(self, text: str, *args: Any) -> list[Any]:
        return await self.read(lambda session: _run(session, text, args))

    async def look(self, steps: Callable[[], Steps[T]]) -> T:
        return await self.read(lambda session: follow(session, steps()))

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        def look(session: Session) -> list[dict[str, Any]]:
            return [dict(row) for row in _plain(session, session.features.statement(feature, statement), args)]

        return await self.read(look)

    def _live_parts(self, query: Query) -> Steps[list[Where | None]]:
        """States that have few tasks are looked for one by one, each by its own index."""
        named = [state for state in query.states if state in LIVE]
        if query.by_state or not named or query.scope is not None or query.trace_id is not None:  # found by those
            return [self.filters.live(one) for one in by_state(query)[0]]
        [totals] = yield SQL["live_totals"], ()
        few = [state for state in named if totals[state.value] <= FEW_OF_A_STATE]
        many = tuple(state for state in named if state not in few)
        # By the index of a state, and then sorted, where it has few; by id, the others would be walked through for
        # them.
        found = [self.filters.live(replace(query, states=(state,)), order="+id") for state in few]
        return [*found, self.filters.live(replace(query, states=many))] if many else found

    def _cancelled(
        self, which: FailureFilter, after: int = 0, upto: int | None = None
    ) -> Steps[tuple[str, Where | None]]:
        """A few cancelled tasks are looked at one by one; where there are very many, the index of the dead letters that
        the filter names is walked instead."""
        names = [(name, value) for name in ("queue", "kind") if (value := getattr(which, name)) is not None]
        where = self.filters.where(names)
        [total] = yield SQL["total_cancelled"] + where.sql, where.args
        if not total["n"]:
            return "cancelled", None
        if total["n"] <= FEW_CANCELLED:
            return "cancelled", self.filters.cancelled(which, after, upto, among="h")
        return "cancelled_of_many", self.filters.cancelled(which, after, upto)

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        def steps() -> Steps[list[Any]]:
            found: list[Any] = []
            for name in DIMENSIONS:
                found += yield SQL["failed_sums"], [name, limit]
            return found

        return largest(await self.look(steps), limit)

    async def now(self) -> datetime:
        return await self.read(lambda session: to_datetime(session.now))

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        def steps() -> Steps[tuple[datetime, list[ScheduleRow]]]:
            [found] = yield NOW
            now: datetime = found["now"]
            return now, [rows.schedule(row) for row in (yield SQL["due_schedules"], [now])]

        return await self.look(steps)


def follow(session: Session, steps: Steps[T]) -> T:
    """Runs the statements of a look one after the other; returns what it makes of them."""
    try:
        statement = next(steps)
        while True:
            found = [{"now": to_datetime(session.now)}] if statement is NOW else _run(session, *statement)
            statement = steps.send(found)
    except StopIteration as end:
        value: T = end.value
        return value


def _run(session: Session, text: str, args: Sequence[Any]) -> list[dict[str, Any]]:
    return [typed(row) for row in _plain(session, text, [encode(value) for value in args])]


def _plain(session: Session, text: str, args: Sequence[Any]) -> list[sqlite3.Row]:
    cursor = session.connection.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(text, args).fetchall()
