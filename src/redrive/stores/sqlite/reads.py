"""Reads everything that the port's read views ask for."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from redrive.ids import is_id
from redrive.kernel.audit import AuditFilter
from redrive.kernel.circuit import CircuitRow
from redrive.kernel.failure_filter import FailedCount, FailedRef, FailureFilter, TaskStatus
from redrive.kernel.joins import Join
from redrive.kernel.ports.store import (
    MOST_ENTRIES,
    CauseQuery,
    CauseRow,
    Count,
    LetterCount,
    Overview,
    Query,
    RetryCount,
    ScheduleRow,
    WorkerLeases,
)
from redrive.kernel.reads import CauseMember, CauseOrder, CauseRanking, counts_of
from redrive.kernel.records import Record
from redrive.kernel.task import LIVE, AuditRow, DeadLetter, State, Task, Timeline
from redrive.stores.features import Features
from redrive.stores.filters import DIMENSIONS, by_state, by_totals, largest
from redrive.stores.rows import MOST_CAUSES_COUNTED, after_prefix, each_once, ranking
from redrive.stores.sql import statements
from redrive.stores.sqlite import codec, filters
from redrive.stores.sqlite.session import Session, dumps, to_datetime, to_micros
from redrive.stores.sqlite.writes import joins as find_joins

SQL = statements("redrive.stores.sqlite", "reads.sql")
FEW_OF_A_STATE = 1_000
FEW_CANCELLED = 5_000
ERASE = statements("redrive.stores.sqlite", "erase.sql")
_FAILED = " and state = 'failed'"
_NAMED = " and id in (select value from json_each(?))"
T = TypeVar("T")


class Reads:
    """The reading half of the SQLite store. Each call sees one snapshot."""

    features: Features

    async def read(self, look: Callable[[Session], T]) -> T:
        raise NotImplementedError

    async def get_many(self, task_ids: Collection[UUID], *, documents: int | None = None) -> dict[UUID, Task]:
        return await self.read(lambda session: _get(session, task_ids, documents))

    async def joins(self, join_ids: Collection[UUID]) -> list[Join]:
        return await self.read(lambda session: find_joins(session, join_ids))

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        def look(session: Session) -> list[dict[str, Any]]:
            return [dict(row) for row in _rows(session, session.features.statement(feature, statement), list(args))]

        return await self.read(look)

    async def statuses(self, task_ids: Collection[UUID]) -> dict[UUID, TaskStatus]:
        args = [dumps([str(task_id) for task_id in task_ids])]
        rest = await self.read(lambda session: _rows(session, SQL["statuses"], args))
        found = {
            UUID(row["id"]): TaskStatus(UUID(row["id"]), State(row["state"]), *list(row)[2:]) for row in rest[::-1]
        }
        return {task_id: found[task_id] for task_id in task_ids if task_id in found}

    async def find(self, query: Query) -> list[Task]:
        return await self.read(lambda session: _find(session, query))

    async def timeline(self, task_id: UUID, *, documents: int | None = None) -> Timeline | None:
        return await self.read(lambda session: _timeline(session, task_id, documents))

    async def dead_letters(self, query: Query) -> list[DeadLetter]:
        sql, args = filters.letters(query)
        name, first = ("letters", []) if query.documents is None else ("page_letters", [query.documents])
        found = await self.read(lambda session: _rows(session, SQL[name] + sql, [*first, *args]))
        return [codec.dead_letter(row, query.documents is not None) for row in found]

    async def failed(
        self,
        which: FailureFilter,
        *,
        limit: int,
        offset: int = 0,
        after: int = 0,
        upto: int | None = None,
        newest: bool = False,
        documents: int | None = None,
    ) -> list[Task]:
        sql, args = _bounded(which, after, upto)
        order = f" order by failed_seq {'desc' if newest else ''}"
        # The place in the order first, by index alone; rows are read for the page only, however far back it is.
        places = SQL["failed_places"] + sql + order + " limit ? offset ?"
        head, first = (SQL["failed"], []) if documents is None else (SQL["page_live"] + _FAILED, [documents])
        text = head + f" and failed_seq in ({places})" + order
        found = await self.read(lambda session: _rows(session, text, [*first, *args, limit, offset]))
        return [codec.task(row, documents is not None) for row in found]

    async def failed_ids(
        self,
        which: FailureFilter,
        *,
        limit: int,
        offset: int = 0,
        after: int = 0,
        upto: int | None = None,
        cancelled: bool = False,
    ) -> list[FailedRef]:
        if cancelled:
            return await self._cancelled_ids(which, limit, offset, after, upto)
        sql, args = _bounded(which, after, upto)
        text = SQL["failed_ids"] + sql + " order by failed_seq limit ? offset ?"
        found = await self.read(lambda session: _rows(session, text, [*args, limit, offset]))
        # What cannot be named cannot be meant.
        meant = [row for row in found if is_id(row["id"])]
        return [codec.failed_ref(row) for row in meant]

    async def count_causes(self, which: FailureFilter, most: int) -> dict[str, int]:
        sql, args = filters.failed(which)
        text = f"{SQL['count_causes']}{sql} order by failed_seq desc limit ?) group by 1"
        found = await self.read(lambda session: _rows(session, text, [*args, most]))
        return {row["fingerprint"]: row["n"] for row in found if row["fingerprint"] is not None}

    async def count_failed(self, which: FailureFilter, most: int | None = None, upto: int | None = None) -> int:
        text, args = _counting(which, most, upto)
        found = await self.read(lambda session: _rows(session, text, args))
        return int(found[0]["n"])

    async def failed_counts(self, fingerprints: Sequence[str] | None = None) -> list[FailedCount]:
        args = [None if fingerprints is None else dumps(list(fingerprints))]
        found = await self.read(lambda session: _rows(session, SQL["failed_counts"], args))
        return [codec.failed_count(row) for row in found]

    async def failed_end(
        self, which: FailureFilter, most: int | None = None, *, cancelled: bool = False
    ) -> tuple[int, int]:
        if cancelled:
            return await self._cancelled_end(which)
        text, args = _counting(which, most)

        def look(session: Session) -> tuple[int, int]:
            (end,), (count,) = _rows(session, SQL["failed_end"]), _rows(session, text, args)
            return end["value"], count["n"]

        return await self.read(look)

    async def _cancelled_ids(
        self, which: FailureFilter, limit: int, offset: int, after: int, upto: int | None
    ) -> list[FailedRef]:
        def look(session: Session) -> list[sqlite3.Row]:
            name, wanted = _among_cancelled(session, which, after, upto)
            if wanted is None:
                return []
            text = SQL[name] + wanted[0] + " order by d.seq limit ? offset ?"
            return _rows(session, text, [*wanted[1], limit, offset])

        found = [
            FailedRef(UUID(row["id"]), row["seq"], row["error_fingerprint"], to_datetime(row["finished_at"]))
            for row in await self.read(look)
        ]
        return each_once(found)

    async def _cancelled_end(self, which: FailureFilter) -> tuple[int, int]:
        def look(session: Session) -> tuple[int, int]:
            [(end,)] = _rows(session, SQL["letters_end"])
            name, wanted = _among_cancelled(session, which)
            if wanted is None:
                return end, 0
            [(count,)] = _rows(session, SQL[f"count_{name}"] + wanted[0], wanted[1])
            return end, count

        return await self.read(look)

    async def retry_counts(self, bulk_id: str) -> list[RetryCount]:
        found = await self.read(lambda session: _rows(session, SQL["retry_counts"], [bulk_id]))
        return [RetryCount(*row) for row in found]

    async def letter_counts(self) -> list[LetterCount]:
        found = await self.read(lambda session: _rows(session, SQL["letter_counts"]))
        return [LetterCount(*row) for row in found]

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        def look(session: Session) -> list[sqlite3.Row]:
            return [row for name in DIMENSIONS for row in _rows(session, SQL["failed_sums"], [name, limit])]

        return largest(await self.read(look), limit)

    async def causes(self, which: CauseQuery) -> list[CauseRow]:
        name, args = _causes(which)
        return [codec.cause(row) for row in await self.read(lambda session: _rows(session, SQL[name], args))]

    async def rank_causes(
        self,
        which: FailureFilter,
        limit: int,
        *,
        order: CauseOrder,
        since: datetime,
        after: tuple[int, str] | None = None,
        failing: bool | None = True,
        without: Sequence[str] = (),
    ) -> CauseRanking:
        wanted = by_totals(which) or []
        place, left_out = after or (None, None), dumps(list(without))
        if not wanted and failing and order is CauseOrder.FAILED:

            def look(session: Session) -> tuple[list[sqlite3.Row], int]:
                found = _rows(session, SQL["rank_failing"], [limit, *place, left_out])
                [(total,)] = _rows(session, SQL["count_failing"], [left_out, MOST_CAUSES_COUNTED])
                return found, total

            return ranking(*await self.read(look))
        sql, args = filters.failed_totals(wanted)
        source = SQL["some_failing"] + sql + " group by 1" if wanted else SQL["all_failing"]
        marks = [f"?{len(args) + nth}" for nth in range(1, 7)]
        body = SQL["rank_causes"].replace("{order}", SQL[f"by_{order}"]).format(*marks)
        values = [*args, failing, left_out, to_micros(since), *place, limit]
        found = await self.read(lambda session: _rows(session, f"with f as materialized ({source}){body}", values))
        return ranking(found, found[0]["total"] if found else 0)

    async def cause_members(self, fingerprint: str, limit: int) -> list[CauseMember]:
        found = await self.read(lambda session: _rows(session, SQL["cause_members"], [fingerprint, limit]))
        return [CauseMember(*row) for row in found]

    async def trends(self, fingerprints: Sequence[str], since: datetime) -> dict[str, list[tuple[datetime, int]]]:
        args = [dumps(list(fingerprints)), to_micros(since)]
        found: dict[str, list[tuple[datetime, int]]] = {fingerprint: [] for fingerprint in fingerprints}
        for row in await self.read(lambda session: _rows(session, SQL["trends"], args)):
            found[row["fingerprint"]].append((to_datetime(row["hour"]), row["n"]))
        return found

    async def audit(
        self,
        which: AuditFilter,
        *,
        limit: int,
        offset: int = 0,
        before: int | None = None,
        after: int | None = None,
        documents: int | None = None,
    ) -> list[AuditRow]:
        sql, args = filters.audit(which)
        for bound, sign in ((before, "<"), (after or None, ">")):
            if bound is not None:
                sql += f" and id {sign} ?"
                args.append(bound)
        # What is past its keep is found by its age; all else by its number.
        oldest = "at, id" if which.older_than is not None else "id"
        sql += f" order by {'id desc' if after is None else oldest} limit ? offset ?"
        name, first = ("audit_log", []) if documents is None else ("page_audit", [documents])
        found = await self.read(lambda session: _rows(session, SQL[name] + sql, [*first, *args, limit, offset]))
        return [codec.audit(row, documents is not None) for row in found]

    async def personal(self, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
        args = [scope, dumps([str(task_id) for task_id in task_ids])]
        found: Counter[str] = Counter()
        for row in await self.read(lambda session: _rows(session, ERASE["personal"], args)):
            found[row["place"]] += row["n"]
        return dict(found)

    async def erasable(self, scope: str, limit: int) -> list[UUID]:
        rows = await self.read(lambda session: _rows(session, ERASE["erasable"], [scope, limit]))
        return [UUID(row["id"]) for row in rows]

    async def count_audit(self, which: AuditFilter) -> int:
        sql, args = filters.audit(which)
        found = await self.read(lambda session: _rows(session, SQL["count_audit"] + sql, args))
        return int(found[0]["n"])

    async def record(self, collection: str, record_id: str) -> Record | None:
        found = await self.read(lambda session: _rows(session, SQL["record"], [collection, record_id]))
        return codec.record(found[0]) if found else None

    async def records(
        self,
        collection: str,
        *,
        states: Sequence[str] = (),
        ids: Sequence[str] | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[Record]:
        sql, args = filters.records(collection, states, ids, limit, before)
        found = await self.read(lambda session: _rows(session, SQL["records"] + sql, args))
        return [codec.record(row) for row in found]

    async def now(self) -> datetime:
        return await self.read(lambda session: to_datetime(session.now))

    async def counts(self) -> list[Count]:
        return await self.read(lambda session: counts_of(_rows(session, SQL["counts"])))

    async def balance(self, account: str) -> int:
        found = await self.read(lambda session: _rows(session, SQL["balance"], [account]))
        return int(found[0]["balance"]) if found else 0

    async def overview(self) -> Overview:
        return await self.read(_overview)

    async def circuits(self) -> list[CircuitRow]:
        return await self.read(_circuits)

    async def leases(self) -> list[WorkerLeases]:
        return await self.read(lambda session: [codec.worker_leases(row) for row in _rows(session, SQL["leases"])])

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        def look(session: Session) -> tuple[datetime, list[ScheduleRow]]:
            due = _rows(session, SQL["due_schedules"], [session.now])
            return to_datetime(session.now), [codec.schedule(row) for row in due]

        return await self.read(look)


def _counting(which: FailureFilter, most: int | None, upto: int | None = None) -> tuple[str, list[Any]]:
    """Returns the statement that counts failed tasks: all by totals, or rows, no more than ``most``."""
    name, sql, args = filters.count_failed(which)
    if name != "count_failed":
        return SQL[name] + sql, args
    if upto is not None:
        sql, args = sql + " and failed_seq <= ?", [*args, upto]
    return (SQL[name] + sql, args) if most is None else (SQL["count_some_failed"] + sql + " limit ?)", [*args, most])


def _causes(which: CauseQuery) -> tuple[str, list[Any]]:
    """Returns the statement that finds causes, and its arguments."""
    if which.fingerprints is not None:
        return "causes_of", [dumps(list(which.fingerprints))]
    if which.prefix is not None:
        return "causes_named", [which.prefix, after_prefix(which.prefix), which.limit]
    place = [None, None] if which.before is None else [to_micros(which.before[0]), which.before[1]]
    name = "causes" if which.failing is None else "causes_failing" if which.failing else "causes_quiet"
    return name, [which.limit, *place]


def _bounded(which: FailureFilter, after: int, upto: int | None) -> tuple[str, list[Any]]:
    sql, args = filters.failed(which)
    if upto is None:
        return f"{sql} and failed_seq > ?", [*args, after]
    return f"{sql} and failed_seq > ? and failed_seq <= ?", [*args, after, upto]


def _rows(session: Session, sql: str, args: Sequence[Any] = ()) -> list[sqlite3.Row]:
    cursor = session.connection.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(sql, args).fetchall()


def _get(session: Session, task_ids: Collection[UUID], documents: int | None = None) -> dict[UUID, Task]:
    args: list[Any] = [dumps([str(task_id) for task_id in task_ids])]
    history, live = SQL["get_history"], SQL["get_live"]
    if documents is not None:
        history, live, args = (
            SQL["page_history"] + _NAMED + " order by finished_at",
            SQL["page_live"] + _NAMED,
            [documents, *args],
        )
    by_id = {row["id"]: row for row in [*_rows(session, history, args), *_rows(session, live, args)]}
    as_text = documents is not None
    return {task_id: codec.task(by_id[str(task_id)], as_text) for task_id in task_ids if str(task_id) in by_id}


def _among_cancelled(
    session: Session, which: FailureFilter, after: int = 0, upto: int | None = None
) -> tuple[str, filters.Filter]:
    """Returns the statement to use, and what to append to it. A few cancelled tasks are looked at one by one; where
    there are very many, the index of the dead letters that the filter names is walked instead."""
    sql, args = filters.of_totals(which)
    [(total,)] = _rows(session, SQL["total_cancelled"] + sql, args)
    if not total:
        return "cancelled", None
    few = total <= FEW_CANCELLED
    return "cancelled" if few else "cancelled_of_many", filters.cancelled(which, after, upto, few=few)


def _of_live(session: Session, query: Query) -> Iterator[filters.Filter]:
    """Yields what to look for among live tasks: states that have few tasks one by one, each by its own index."""
    if query.by_state:
        yield from (filters.live(one) for one in by_state(query)[0])
        return
    named = [state for state in query.states if state in LIVE]
    if not named or any(getattr(query, one) is not None for one in ("scope", "trace_id")):  # found by those
        yield filters.live(query)
        return
    [totals] = _rows(session, SQL["live_totals"])
    few = [state for state in named if totals[state.value] <= FEW_OF_A_STATE]
    yield from (filters.live(replace(query, states=(state,)), few=True) for state in few)
    if many := tuple(state for state in named if state not in few):
        yield filters.live(replace(query, states=many))


def _find(session: Session, query: Query) -> list[Task]:
    found: list[sqlite3.Row] = []
    live, history, first = "find_brief" if query.brief else "find_live", "find_history", list[Any]()
    if query.documents is not None:
        live, history, first = "page_live", "page_history", [query.documents]
    finished = (filters.history(one) for one in by_state(query)[1])
    for name, wanted in (*((live, one) for one in _of_live(session, query)), *((history, one) for one in finished)):
        if wanted is not None:
            sql, args = wanted
            found += _rows(session, SQL[name] + sql, [*first, *args])
    found.sort(key=lambda row: str(row["id"]), reverse=True)
    return [codec.task(row, query.documents is not None) for row in found[: query.limit]]


def _timeline(session: Session, task_id: UUID, documents: int | None) -> Timeline | None:
    task = _get(session, [task_id], documents).get(task_id)
    if task is None:
        return None
    args: list[Any] = [str(task_id), MOST_ENTRIES]
    letters = SQL["letters_of"], args
    if documents is not None:
        letters = SQL["page_letters"] + " and task_id = ? order by seq desc limit ?", [documents, *args]
    return Timeline(
        task,
        [codec.attempt(row) for row in _rows(session, SQL["attempts"], args)[::-1]],
        [codec.dead_letter(row, documents is not None) for row in _rows(session, *letters)[::-1]],
        [codec.audit(row) for row in _rows(session, SQL["audit_of"], args)[::-1]],
    )


def _overview(session: Session) -> Overview:
    return Overview(
        to_datetime(session.now),
        [codec.hold(row) for row in _rows(session, SQL["holds"])],
        [codec.limit(row) for row in _rows(session, SQL["limits"])],
        [codec.worker(row) for row in _rows(session, SQL["workers"])],
        [codec.schedule(row) for row in _rows(session, SQL["schedules"])],
        _circuits(session),
    )


def _circuits(session: Session) -> list[CircuitRow]:
    return [codec.circuit(row) for row in _rows(session, SQL["circuits"])]
