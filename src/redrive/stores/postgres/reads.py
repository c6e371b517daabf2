"""Reads everything that the port's read views ask for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.ids import time_of
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
from redrive.kernel.reads import MANY_ROWS, CauseMember, CauseOrder, CauseRanking, counts_of
from redrive.kernel.records import Record
from redrive.kernel.task import AuditRow, DeadLetter, State, Task, Timeline
from redrive.stores import rows
from redrive.stores.features import Features
from redrive.stores.filters import by_state, by_totals, largest
from redrive.stores.postgres import filters
from redrive.stores.postgres.pool import Pool, fetch, value
from redrive.stores.rows import MOST_CAUSES_COUNTED, after_prefix, ranking
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
SMALL_TABLES = ("now", "holds", "limits", "workers", "schedules", "circuits")


class Reads:
    """The reading half of the PostgreSQL store."""

    pool: Pool
    features: Features

    async def get_many(self, task_ids: Collection[UUID], *, documents: int | None = None) -> dict[UUID, Task]:
        live, history, first = _whole if documents is None else _paged(documents)

        async def look(connection: Any) -> dict[UUID, Any]:
            found = {row["id"]: row for row in await connection.fetch(live, *first, list(task_ids))}
            # The time in an id is the producer's clock, which may be ahead of ours: before saying no, look everywhere.
            for everywhere in (False, True):
                missing = [task_id for task_id in task_ids if task_id not in found]
                times = [time_of(task_id) for task_id in missing]
                since = None if everywhere or None in times else min((time for time in times if time), default=None)
                if missing:
                    rest = await connection.fetch(history, *first, missing, since)
                    found |= {row["id"]: row for row in rest}
            return found

        # One snapshot: a task on its way from the live table to history is seen in one of them.
        found = await self._snapshot(look)
        as_text = documents is not None
        return {task_id: rows.task(found[task_id], as_text) for task_id in task_ids if task_id in found}

    async def joins(self, join_ids: Collection[UUID]) -> list[Join]:
        return [Join(**dict(row)) for row in await self._rows("joins", list(join_ids))]

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        text = self.features.statement(feature, statement)
        return [dict(row) for row in await self.pool.run(lambda connection: connection.fetch(text, *args))]

    async def statuses(self, task_ids: Collection[UUID]) -> dict[UUID, TaskStatus]:
        rest = await self._rows("statuses", list(task_ids))
        found = {row["id"]: TaskStatus(row["id"], State(row["state"]), *list(row)[2:]) for row in reversed(rest)}
        return {task_id: found[task_id] for task_id in task_ids if task_id in found}

    async def find(self, query: Query) -> list[Task]:
        names = ("find_brief" if query.brief else "find_live", "find_history")
        if query.documents is not None:
            names = ("page_live", "page_history")
        live, history = by_state(query)
        parts = [(names[0], filters.live(one)) for one in live] + [(names[1], filters.history(one)) for one in history]

        async def look(connection: Any) -> list[Any]:
            found: list[Any] = []
            for name, where in parts:
                if where is not None:
                    found += await connection.fetch(SQL[name] + where.sql, *where.args)
            return found

        found = {row["id"]: row for row in reversed(await self._snapshot(look))}
        newest = sorted(found.values(), key=lambda row: row["id"].int, reverse=True)
        return [rows.task(row, query.documents is not None) for row in newest[: query.limit]]

    async def timeline(self, task_id: UUID, *, documents: int | None = None) -> Timeline | None:
        task = (await self.get_many([task_id], documents=documents)).get(task_id)
        if task is None:
            return None
        return Timeline(
            task,
            [rows.attempt(row) for row in await self._latest("attempts", task_id)],
            await self._letters_of(task_id, documents),
            [rows.audit(row) for row in await self._latest("audit_of", task_id)],
        )

    async def _latest(self, name: str, task_id: UUID) -> list[Any]:
        return (await self._rows(name, task_id, MOST_ENTRIES))[::-1]

    async def _letters_of(self, task_id: UUID, documents: int | None) -> list[DeadLetter]:
        if documents is None:
            return [rows.dead_letter(row) for row in await self._latest("letters_of", task_id)]
        where = filters.Where([], documents).add(" and task_id = {} order by seq desc limit {}", task_id, MOST_ENTRIES)
        return [rows.dead_letter(row, True) for row in (await self._where("page_letters", where))[::-1]]

    async def dead_letters(self, query: Query) -> list[DeadLetter]:
        if query.documents is None:
            return [rows.dead_letter(row) for row in await self._where("letters", filters.letters(query))]
        return [rows.dead_letter(row, True) for row in await self._where("page_letters", filters.letters(query))]

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
        where = _bounded(which, after, upto, documents)
        order = " order by failed_seq" + (" desc" if newest else "")
        where.add(order + " limit {} offset {}", limit, offset)
        # The place in the order first, by index alone; rows are read for the page only, however far back it is.
        rest = f"{SQL['failed_places']}{where.sql})){order}"
        page = f"{SQL['page_live']} and state = 'failed' and failed_seq = any (array({rest}"
        text = page if documents is not None else f"{SQL['failed']}({rest}"
        found = await self.pool.read(lambda connection: connection.fetch(text, *where.args))
        return [rows.task(row, documents is not None) for row in found]

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
        where = _bounded(which, after, upto).add(" order by failed_seq limit {} offset {}", limit, offset)
        return [FailedRef(*row) for row in await self._where("failed_ids", where)]

    async def count_causes(self, which: FailureFilter, most: int) -> dict[str, int]:
        where = filters.failed(which).add(" order by failed_seq desc limit {}) x group by 1", most)
        return {row[0]: row[1] for row in await self._where("count_causes", where) if row[0] is not None}

    async def count_failed(self, which: FailureFilter, most: int | None = None, upto: int | None = None) -> int:
        name, where = filters.count_failed(which)
        if name == "count_failed" and upto is not None:
            where.add(" and failed_seq <= {}", upto)
        text = SQL[name] + where.sql
        if most is not None and name == "count_failed":
            text = SQL["count_some_failed"] + where.add(" limit {}) x", most).sql
        found: int = await self.pool.read(lambda connection: connection.fetchval(text, *where.args))
        return found

    async def failed_counts(self, fingerprints: Sequence[str] | None = None) -> list[FailedCount]:
        where = filters.Where([])
        if fingerprints is not None:
            where.add(" and fingerprint = any ({})", list(fingerprints))
        return [rows.failed_count(row) for row in await self._where("failed_counts", where.add(" order by n desc"))]

    async def failed_end(
        self, which: FailureFilter, most: int | None = None, *, cancelled: bool = False
    ) -> tuple[int, int]:
        if cancelled:
            return await self._cancelled_end(which)
        name, where = filters.count_failed(which)
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

    async def _cancelled_ids(
        self, which: FailureFilter, limit: int, offset: int, after: int, upto: int | None
    ) -> list[FailedRef]:
        where = filters.cancelled(which, after, upto)
        if where is None:
            return []
        where.add(" order by d.seq limit {} offset {}", limit, offset)
        return rows.each_once([FailedRef(*row) for row in await self._where("cancelled", where)])

    async def _cancelled_end(self, which: FailureFilter) -> tuple[int, int]:
        end: int = await self.pool.read(lambda connection: connection.fetchval(SQL["letters_end"]))
        where = filters.cancelled(which, upto=end)
        return end, 0 if where is None else (await self._where("count_cancelled", where))[0][0]

    async def retry_counts(self, bulk_id: str) -> list[RetryCount]:
        return [RetryCount(*row) for row in await self._rows("retry_counts", bulk_id)]

    async def letter_counts(self) -> list[LetterCount]:
        return [LetterCount(*row) for row in await self._rows("letter_counts")]

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        return largest(await self._rows("failed_sums", limit), limit)

    async def causes(self, which: CauseQuery) -> list[CauseRow]:
        if which.fingerprints is not None:
            return [rows.cause(row) for row in await self._rows("causes_of", list(which.fingerprints))]
        before, args = which.before, [which.limit, *(which.before or (None, None))]
        name = "causes" if which.failing is None else "causes_failing" if which.failing else "causes_quiet"
        if which.prefix is not None:
            name, args = "causes_named", [which.prefix, after_prefix(which.prefix), which.limit]

        async def look(connection: Any) -> list[Any]:
            names = await connection.fetch(SQL[name], *args)
            found: list[Any] = await connection.fetch(SQL["causes_of"], [row["fingerprint"] for row in names])
            return found

        def place(row: Any) -> tuple[datetime, str]:
            return row["last_seen"], row["fingerprint"]

        found = [row for row in await self._snapshot(look) if before is None or place(row) < before]
        return [rows.cause(row) for row in sorted(found, key=place, reverse=True)[: which.limit]]

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
        place, left_out = after or (None, None), list(without)
        if not wanted and failing and order is CauseOrder.FAILED:

            async def look(connection: Any) -> tuple[list[Any], int]:
                found = await connection.fetch(SQL["rank_failing"], limit, *place, left_out)
                return found, await connection.fetchval(SQL["count_failing"], left_out, MOST_CAUSES_COUNTED)

            found, total = await self._snapshot(look)
            return ranking(found, total)
        where = filters.Where(wanted)
        source = SQL["some_failing"] + where.sql + " group by 1" if wanted else SQL["all_failing"]
        where.sql = f"with f as materialized ({source})"
        body = SQL["rank_causes"].replace("{order}", SQL[f"by_{order}"])
        where.add(body, failing, left_out, since, *place, limit)
        found = await self.pool.read(lambda connection: connection.fetch(where.sql, *where.args))
        return ranking(found, found[0]["total"] if found else 0)

    async def cause_members(self, fingerprint: str, limit: int) -> list[CauseMember]:
        return [CauseMember(*row) for row in await self._rows("cause_members", fingerprint, limit)]

    async def trends(self, fingerprints: Sequence[str], since: datetime) -> dict[str, list[tuple[datetime, int]]]:
        found: dict[str, list[tuple[datetime, int]]] = {fingerprint: [] for fingerprint in fingerprints}
        for row in await self._rows("trends", list(fingerprints), since):
            found[row["fingerprint"]].append((row["hour"], row["n"]))
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
        where = filters.audit(which, documents)
        if before is not None:
            where.add(" and id < {}", before)
        if after:
            where.add(" and id > {}", after)
        # What is past its keep is found by its age; all else by its number.
        oldest = "at, id" if which.older_than is not None else "id"
        where.add(f" order by {'id desc' if after is None else oldest} limit {{}} offset {{}}", limit, offset)
        name = "audit_log" if documents is None else "page_audit"
        return [rows.audit(row, documents is not None) for row in await self._where(name, where)]

    async def personal(self, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
        found: Counter[str] = Counter()
        for row in await self._rows("personal", scope, list(task_ids)):
            found[row["place"]] += row["n"]
        return dict(found)

    async def erasable(self, scope: str, limit: int) -> list[UUID]:
        return [row["id"] for row in await self._rows("erasable", scope, limit)]

    async def count_audit(self, which: AuditFilter) -> int:
        where = filters.audit(which)
        text = SQL["count_audit"] + where.sql
        found: int = await self.pool.read(lambda connection: connection.fetchval(text, *where.args))
        return found

    async def record(self, collection: str, record_id: str) -> Record | None:
        found = await self._rows("record", collection, record_id)
        return rows.record(found[0]) if found else None

    async def records(
        self,
        collection: str,
        *,
        states: Sequence[str] = (),
        ids: Sequence[str] | None = None,
        limit: int = 100,
        before: int | None = None,
    ) -> list[Record]:
        wanted = None if ids is None else list(ids)
        found = await self._rows("records", collection, list(states) or None, wanted, before, limit)
        return [rows.record(row) for row in found]

    async def now(self) -> datetime:
        found: datetime = await self.pool.read(lambda connection: connection.fetchval(SQL["now"]))
        return found

    async def counts(self) -> list[Count]:
        found = await self._rows("counts")
        return counts_of(found) if len(found) < MANY_ROWS else await asyncio.to_thread(counts_of, found)

    async def balance(self, account: str) -> int:
        found = await self._rows("balance", account)
        return found[0]["balance"] if found else 0

    async def overview(self) -> Overview:
        async def look(connection: Any) -> list[Any]:
            return [await connection.fetch(SQL[name]) for name in SMALL_TABLES]

        now, holds, limits, workers, schedules, circuits = await self._snapshot(look)
        return Overview(
            now[0][0],
            [rows.hold(r) for r in holds],
            [rows.limit(r) for r in limits],
            [rows.worker(r) for r in workers],
            [rows.schedule(r) for r in schedules],
            [rows.circuit(r) for r in circuits],
        )

    async def circuits(self) -> list[CircuitRow]:
        return [rows.circuit(row) for row in await fetch(self.pool, "circuits")]

    async def leases(self) -> list[WorkerLeases]:
        return [rows.worker_leases(row) for row in await self._rows("leases")]

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        found = await fetch(self.pool, "due_schedules")
        now = found[0]["now"] if found else await value(self.pool, "now")
        return now, [rows.schedule(row) for row in found]

    async def _rows(self, name: str, *args: Any) -> list[Any]:
        found: list[Any] = await self.pool.read(lambda connection: connection.fetch(SQL[name], *args))
        return found

    async def _where(self, name: str, where: filters.Where) -> list[Any]:
        text = SQL[name] + where.sql
        found: list[Any] = await self.pool.read(lambda connection: connection.fetch(text, *where.args))
        return found

    async def _snapshot(self, work: Any) -> Any:
        return await self.pool.read(work, snapshot=True)


_whole: tuple[str, str, list[Any]] = (SQL["get_live"], SQL["get_history"], [])


def _paged(documents: int) -> tuple[str, str, list[Any]]:
    """Returns the same two statements for a page: their first argument is how long a document may be."""
    since = " and id = any ($2) and ($3::timestamptz is null or finished_at >= $3) order by finished_at"
    return SQL["page_live"] + " and id = any ($2)", SQL["page_history"] + since, [documents]


def _bounded(which: FailureFilter, after: int, upto: int | None, documents: int | None = None) -> filters.Where:
    where = filters.failed(which, documents).add(" and failed_seq > {}", after)
    return where if upto is None else where.add(" and failed_seq <= {}", upto)
