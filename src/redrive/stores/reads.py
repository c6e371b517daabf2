"""Reads everything that the port's read views ask for, of both SQL stores: what is asked and what is made of it stands
here, how statements are run with each store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

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
    WorkerLeases,
)
from redrive.kernel.reads import MANY_ROWS, CauseMember, CauseOrder, CauseRanking, counts_of
from redrive.kernel.records import Record
from redrive.kernel.task import AuditRow, DeadLetter, Task, Timeline
from redrive.stores import rows
from redrive.stores.filters import Filters, Where, by_state, by_totals, largest
from redrive.stores.rows import MOST_CAUSES_COUNTED, after_prefix, ranking

T = TypeVar("T")
Statement = tuple[str, Sequence[Any]]
# A look of several statements: yields each with its arguments, gets its rows, and returns what was asked for.
Steps = Generator[Statement, list[Any], T]
_CANCELLED = "select h.id, d.seq, d.error_fingerprint, h.finished_at "
_FAILING = {None: "true", True: "failing > 0", False: "failing = 0"}
NOW: Statement = ("now", ())  # asks for the time by which the store decides


class Reads:
    """The reading half of a store. Each call sees one moment."""

    texts: Mapping[str, str]  # its named statements
    filters: Filters

    async def ask(self, text: str, *args: Any) -> list[Any]:
        """Returns the rows of one statement: ids, times and lists in their own types."""
        raise NotImplementedError

    async def look(self, steps: Callable[[], Steps[T]]) -> T:
        """Returns what several statements of one moment say."""
        raise NotImplementedError

    async def _rows(self, name: str, *args: Any) -> list[Any]:
        return await self.ask(self.texts[name], *args)

    async def _where(self, name: str, where: Where) -> list[Any]:
        return await self.ask(self.texts[name] + where.sql, *where.args)

    # -- tasks -----------------------------------------------------------------------------------------------------

    async def get_many(self, task_ids: Collection[UUID], *, documents: int | None = None) -> dict[UUID, Task]:
        return await self.look(lambda: self._get(task_ids, documents))

    def _get(self, task_ids: Collection[UUID], documents: int | None) -> Steps[dict[UUID, Task]]:
        # One moment: a task on its way from the live table to history is seen in one of them.
        live, history = ("find_live", "find_history") if documents is None else ("page_live", "page_history")
        where = self.filters.where(first=documents).any_of("id", task_ids)
        found = _by_id((yield self.texts[live] + where.sql, where.args))
        for since in self._history_from(task_ids):
            if not (missing := [task_id for task_id in task_ids if task_id not in found]):
                break
            where = self.filters.where(first=documents).any_of("id", missing)
            if since is not None:
                where.add(" and finished_at >= {}", since)
            found |= _by_id((yield self.texts[history] + where.sql + " order by finished_at", where.args))
        as_text = documents is not None
        return {task_id: rows.task(found[task_id], as_text) for task_id in task_ids if task_id in found}

    def _history_from(self, task_ids: Collection[UUID]) -> Sequence[datetime | None]:
        """Returns from when on history is looked at for these, one look after the other; None: all of it."""
        return (None,)

    async def statuses(self, task_ids: Collection[UUID]) -> dict[UUID, TaskStatus]:
        found = {one.id: one for one in map(rows.status, reversed(await self._rows("statuses", list(task_ids))))}
        return {task_id: found[task_id] for task_id in task_ids if task_id in found}

    async def find(self, query: Query) -> list[Task]:
        return await self.look(lambda: self._find(query))

    def _find(self, query: Query) -> Steps[list[Task]]:
        live, history = "find_brief" if query.brief else "find_live", "find_history"
        if query.documents is not None:
            live, history = "page_live", "page_history"
        parts = [(live, where) for where in (yield from self._live_parts(query))]
        parts += [(history, self._finished(one)) for one in by_state(query)[1]]
        found: list[Any] = []
        for name, where in parts:
            if where is not None:
                found += yield self.texts[name] + where.sql, where.args
        newest = sorted(_by_id(reversed(found)).items(), key=lambda one: one[0].int, reverse=True)
        return [rows.task(row, query.documents is not None) for _, row in newest[: query.limit]]

    def _live_parts(self, query: Query) -> Steps[list[Where | None]]:
        """Returns the filters by which live tasks are looked for, one after the other."""
        yield from ()
        return [self.filters.live(one) for one in by_state(query)[0]]

    def _finished(self, query: Query) -> Where | None:
        return self.filters.history(query)

    async def timeline(self, task_id: UUID, *, documents: int | None = None) -> Timeline | None:
        return await self.look(lambda: self._timeline(task_id, documents))

    def _timeline(self, task_id: UUID, documents: int | None) -> Steps[Timeline | None]:
        task = (yield from self._get([task_id], documents)).get(task_id)
        if task is None:
            return None
        latest = " and task_id = {} order by seq desc limit {}"
        attempts = yield self.texts["attempts"], [task_id, MOST_ENTRIES]
        where = self.filters.where(first=documents).add(latest, task_id, MOST_ENTRIES)
        letters = yield self.texts["letters" if documents is None else "page_letters"] + where.sql, where.args
        audits = yield self.texts["audit_of"], [task_id, MOST_ENTRIES]
        return Timeline(
            task,
            [rows.attempt(row) for row in reversed(attempts)],
            [rows.dead_letter(row, documents is not None) for row in reversed(letters)],
            [rows.audit(row) for row in reversed(audits)],
        )

    async def dead_letters(self, query: Query) -> list[DeadLetter]:
        name = "letters" if query.documents is None else "page_letters"
        found = await self._where(name, self.filters.letters(query))
        return [rows.dead_letter(row, query.documents is not None) for row in found]

    async def joins(self, join_ids: Collection[UUID]) -> list[Join]:
        return [rows.join(row) for row in await self._rows("joins", list(join_ids))]

    # -- what is failed now, or was given up -----------------------------------------------------------------------

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
        where = self.filters.between(which, after, upto, documents)
        order = f" order by failed_seq {'desc' if newest else ''}"
        where.add(order + " limit {} offset {}", limit, offset)
        # The place in the order first, by index alone; rows are read for the page only, however far back it is.
        places = self.filters.dialect.within.format("failed_seq", self.texts["failed_places"] + where.sql)
        head = self.texts["find_live" if documents is None else "page_live"]
        found = await self.ask(f"{head} and state = 'failed'{places}{order}", *where.args)
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
            return await self.look(lambda: self._cancelled_ids(which, limit, offset, after, upto))
        where = self.filters.between(which, after, upto).add(" order by failed_seq limit {} offset {}", limit, offset)
        return rows.failed_refs(await self._where("failed_ids", where))

    def _cancelled_ids(
        self, which: FailureFilter, limit: int, offset: int, after: int, upto: int | None
    ) -> Steps[list[FailedRef]]:
        name, where = yield from self._cancelled(which, after, upto)
        if where is None:
            return []
        where.add(" order by d.seq limit {} offset {}", limit, offset)
        return rows.each_once(rows.failed_refs((yield _CANCELLED + self.texts[name] + where.sql, where.args)))

    def _cancelled(
        self, which: FailureFilter, after: int = 0, upto: int | None = None
    ) -> Steps[tuple[str, Where | None]]:
        """Returns the statement that finds cancelled tasks, and what to append to it."""
        yield from ()
        return "cancelled", self.filters.cancelled(which, after, upto)

    async def failed_end(
        self, which: FailureFilter, most: int | None = None, *, cancelled: bool = False
    ) -> tuple[int, int]:
        return await self.look(lambda: self._cancelled_end(which) if cancelled else self._failed_end(which, most))

    def _failed_end(self, which: FailureFilter, most: int | None) -> Steps[tuple[int, int]]:
        end = _value((yield self.texts["failed_end"], ()))
        return end, _value((yield self._counting(which, most)))

    def _cancelled_end(self, which: FailureFilter) -> Steps[tuple[int, int]]:
        end = _value((yield self.texts["letters_end"], ()))
        name, where = yield from self._cancelled(which, upto=end)
        if where is None:
            return end, 0
        return end, _value((yield f"select count(distinct d.seq) as n {self.texts[name]}{where.sql}", where.args))

    async def count_failed(self, which: FailureFilter, most: int | None = None, upto: int | None = None) -> int:
        text, args = self._counting(which, most, upto)
        return int(_value(await self.ask(text, *args)))

    def _counting(self, which: FailureFilter, most: int | None, upto: int | None = None) -> Statement:
        """Returns the statement that counts failed tasks: all by totals, or rows, no more than ``most``."""
        name, where = self.filters.count_failed(which)
        if name == "count_failed":
            if upto is not None:
                where.add(" and failed_seq <= {}", upto)
            if most is not None:
                name, where = "count_some_failed", where.add(" limit {}) x", most)
        return self.texts[name] + where.sql, where.args

    async def failed_counts(self, fingerprints: Sequence[str] | None = None) -> list[FailedCount]:
        where = self.filters.where()
        if fingerprints is not None:
            where.any_of("fingerprint", fingerprints)
        return [rows.failed_count(row) for row in await self._where("failed_counts", where.add(" order by n desc"))]

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        return largest(await self._rows("failed_sums", limit), limit)

    async def retry_counts(self, bulk_id: str) -> list[RetryCount]:
        return [RetryCount(*row.values()) for row in await self._rows("retry_counts", bulk_id)]

    async def letter_counts(self) -> list[LetterCount]:
        return [LetterCount(*row.values()) for row in await self._rows("letter_counts")]

    # -- causes ----------------------------------------------------------------------------------------------------

    async def causes(self, which: CauseQuery) -> list[CauseRow]:
        if which.fingerprints is not None:
            return [rows.cause(row) for row in await self._rows("causes_of", list(which.fingerprints))]
        found = [rows.cause(row) for row in await self.look(lambda: self._latest_causes(which))]
        before = which.before
        latest = [one for one in found if before is None or (one.last_seen, one.fingerprint) < before]
        return sorted(latest, key=lambda one: (one.last_seen, one.fingerprint), reverse=True)[: which.limit]

    def _latest_causes(self, which: CauseQuery) -> Steps[list[Any]]:
        """Returns those that may be meant: names first, since what was not folded yet is part of every look."""
        text = self.texts["causes"].replace("{failing}", _FAILING[which.failing])
        args: list[Any] = [which.limit, *(which.before or (None, None))]
        if which.prefix is not None:
            text, args = self.texts["causes_named"], [which.prefix, after_prefix(which.prefix), which.limit]
        names = yield text, args
        return (yield self.texts["causes_of"], [[row["fingerprint"] for row in names]])

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

            def steps() -> Steps[CauseRanking]:
                found = yield self.texts["rank_failing"], [limit, *place, left_out]
                return ranking(found, _value((yield self.texts["count_failing"], [left_out, MOST_CAUSES_COUNTED])))

            return await self.look(steps)
        where = self.filters.where(wanted)
        source = self.texts["some_failing"] + where.sql + " group by 1" if wanted else self.texts["all_failing"]
        where.sql = f"with f as materialized ({source})"
        body = self.texts["rank_causes"].replace("{order}", self.texts[f"by_{order}"])
        where.add(body, failing, left_out, since, *place, limit)
        found = await self.ask(where.sql, *where.args)
        return ranking(found, found[0]["total"] if found else 0)

    async def count_causes(self, which: FailureFilter, most: int) -> dict[str, int]:
        where = self.filters.failed(which).add(" order by failed_seq desc limit {}) x group by 1", most)
        found = await self._where("count_causes", where)
        return {row["fingerprint"]: row["n"] for row in found if row["fingerprint"] is not None}

    async def cause_members(self, fingerprint: str, limit: int) -> list[CauseMember]:
        return [CauseMember(*row.values()) for row in await self._rows("cause_members", fingerprint, limit)]

    async def trends(self, fingerprints: Sequence[str], since: datetime) -> dict[str, list[tuple[datetime, int]]]:
        found: dict[str, list[tuple[datetime, int]]] = {fingerprint: [] for fingerprint in fingerprints}
        for row in await self._rows("trends", list(fingerprints), since):
            found[row["fingerprint"]].append((row["hour"], row["n"]))
        return found

    # -- documents, the audit log, personal data -------------------------------------------------------------------

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
        where = self.filters.records(collection, states, ids, before).add(" order by seq desc limit {}", limit)
        return [rows.record(row) for row in await self._where("records", where)]

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
        where = self.filters.audit(which, documents)
        if before is not None:
            where.add(" and id < {}", before)
        if after:
            where.add(" and id > {}", after)
        # What is past its keep is found by its age; all else by its number.
        oldest = "at, id" if which.older_than is not None else "id"
        where.add(f" order by {'id desc' if after is None else oldest} limit {{}} offset {{}}", limit, offset)
        found = await self._where("audit_log" if documents is None else "page_audit", where)
        return [rows.audit(row, documents is not None) for row in found]

    async def count_audit(self, which: AuditFilter) -> int:
        return int(_value(await self._where("count_audit", self.filters.audit(which))))

    async def personal(self, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
        found: Counter[str] = Counter()
        for row in await self._rows("personal", scope, list(task_ids)):
            found[row["place"]] += row["n"]
        return dict(found)

    async def erasable(self, scope: str, limit: int) -> list[UUID]:
        return [rows.identity(row["id"]) for row in await self._rows("erasable", scope, limit)]

    # -- totals and small tables -----------------------------------------------------------------------------------

    async def counts(self) -> list[Count]:
        found = await self._rows("counts")
        return counts_of(found) if len(found) < MANY_ROWS else await asyncio.to_thread(counts_of, found)

    async def balance(self, account: str) -> int:
        found = await self._rows("balance", account)
        return int(found[0]["balance"]) if found else 0

    async def overview(self) -> Overview:
        return await self.look(self._overview)

    def _overview(self) -> Steps[Overview]:
        now = _value((yield NOW))
        holds = yield self.texts["holds"], ()
        limits = yield self.texts["limits"], ()
        workers = yield self.texts["workers"], ()
        schedules = yield self.texts["schedules"], ()
        circuits = yield self.texts["circuits"], ()
        return Overview(
            now,
            [rows.hold(row) for row in holds],
            [rows.limit(row) for row in limits],
            [rows.worker(row) for row in workers],
            [rows.schedule(row) for row in schedules],
            [rows.circuit(row) for row in circuits],
        )

    async def circuits(self) -> list[CircuitRow]:
        return [rows.circuit(row) for row in await self._rows("circuits")]

    async def leases(self) -> list[WorkerLeases]:
        return [rows.worker_leases(row) for row in await self._rows("leases")]


def _by_id(found: Any) -> dict[UUID, Any]:
    return {rows.identity(row["id"]): row for row in found}


def _value(found: list[Any]) -> Any:
    """Returns the first value of the first row."""
    return next(iter(found[0].values()))
