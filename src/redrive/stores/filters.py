"""Turns filters into SQL conditions: only what is asked for is in the text, so that each can use its index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Query
from redrive.kernel.task import HISTORY, LIVE, State

# What the totals are kept by: a filter of these alone needs no rows to be counted.
_COUNTED = {
    "kind": "kind",
    "queue": "queue",
    "group": "task_group",
    "error_code": "error_code",
    "error_reason": "error_reason",
    "failure_type": "failure_type",
    "dead_reason": "dead_reason",
    "fingerprint": "fingerprint",
}
_COLUMNS = _COUNTED | {
    "fingerprint": "error_fingerprint",
    "scope": "scope",
    "trace_id": "trace_id",
    "bulk_id": "last_replayed_bulk_id",
    "join": "join_id",
}
_NOT_COUNTED = ("ids", "scope", "trace_id", "bulk_id", "since", "until", "join")
Condition = tuple[str, Any]
# Failures get their places in the order in which they happen, but for those that happen at the same time. So the places
# of a time are found by the index of times, and whatever else is asked for by its own index, between these places.
SIDE_BY_SIDE = timedelta(minutes=10)


def conditions(which: FailureFilter) -> list[Condition]:
    """Returns columns of tasks and the values they must have; ids are left to the store."""
    return [(column, value) for name, column in _COLUMNS.items() if (value := getattr(which, name)) is not None]


def by_totals(which: FailureFilter) -> list[Condition] | None:
    """Returns columns of the totals and their values; None when rows have to be looked at."""
    if any(getattr(which, name) is not None for name in _NOT_COUNTED):
        return None
    return [(column, value) for name, column in _COUNTED.items() if (value := getattr(which, name)) is not None]


_LABELS = {"kind": "kind", "queue": "queue", "group": "task_group", "scope": "scope", "trace_id": "trace_id"}
_LETTERS = {
    "error_code": "d.error_code",
    "error_reason": "d.error_reason",
    "failure_type": "d.failure_type",
    "dead_reason": "d.reason",
    "fingerprint": "d.error_fingerprint",
}


def of_cancelled(which: FailureFilter, labels: str) -> list[Condition] | None:
    """Returns columns of cancelled tasks (h) and of their last dead letters (d); None when nothing can match: the bulk
    action that retried a task last is not kept with it, and dead letters know no join. Both have labels; ``labels``
    says whose are looked at."""
    if which.bulk_id is not None or which.join is not None:
        return None
    columns = {name: f"{labels}.{column}" for name, column in _LABELS.items()} | _LETTERS
    found = [(column, value) for name, column in columns.items() if (value := getattr(which, name)) is not None]
    return found if which.with_forgotten else [*found, ("h.forgotten", False)]


# What is summed up by itself.
_SUMMED = {
    "kind": "kind",
    "queue": "queue",
    "task_group": "group",
    "error_code": "code",
    "failure_type": "type",
    "dead_reason": "reason",
    "fingerprint": "cause",
}


DIMENSIONS = ("total", *_SUMMED.values())


def by_one(wanted: list[Condition]) -> list[Condition] | None:
    """Returns dimension and value of the sum that these conditions ask for; None when they ask for more than one."""
    if not wanted:
        return [("dimension", "total"), ("value", "")]
    if len(wanted) > 1 or wanted[0][0] not in _SUMMED:
        return None
    return [("dimension", _SUMMED[wanted[0][0]]), ("value", wanted[0][1])]


def largest(rows: Iterable[Any], limit: int) -> dict[str, dict[str, int]]:
    """Returns sums by dimension and value, the largest first."""
    found: dict[str, dict[str, int]] = {}
    for row in sorted(rows, key=lambda row: (-row["n"], row["value"])):
        of = found.setdefault(row["dimension"], {})
        if row["n"] and len(of) < limit:
            of[row["value"]] = row["n"]
    return found


_SHARED = {
    "kind": "kind",
    "queue": "queue",
    "group": "task_group",
    "scope": "scope",
    "trace_id": "trace_id",
    "join": "join_id",
}
_ERRORS = {
    "error_code": "error_code",
    "error_reason": "error_reason",
    "failure_type": "failure_type",
    "dead_reason": "dead_reason",
    "fingerprint": "error_fingerprint",
}
_LIVE_ONLY = _ERRORS | {"bulk_id": "last_replayed_bulk_id"}


def of_query(query: Query, *, errors: bool, letters: bool = False) -> list[Condition] | None:
    """Returns columns of tasks, of history (no ``errors``) or of dead letters; None when nothing there can match:
    finished tasks carry no error, nor who retried them."""
    if not errors and any(getattr(query, name) is not None for name in _LIVE_ONLY):
        return None
    columns = _SHARED | ({} if not errors else _ERRORS | {"dead_reason": "reason"} if letters else _LIVE_ONLY)
    return [(column, value) for name, column in columns.items() if (value := getattr(query, name)) is not None]


def chosen(states: Sequence[State], among: Iterable[State]) -> str | None:
    """Returns the wanted states as SQL; None when none of these are among them. Literals, not parameters: a partial
    index is used only when the state can be seen in the statement."""
    if not states:
        return ""
    found = [f"'{state.value}'" for state in states if state in among]
    if len(found) == 1:  # SQLite sees it in an equation only
        return f" and state = {found[0]}"
    return f" and state in ({', '.join(found)})" if found else None


_AUDIT = ("action", "actor", "bulk_id", "target", "task_id", "kind", "scope", "trace_id")


def of_audit(which: AuditFilter) -> list[Condition]:
    """Returns columns of the audit log and the values they must have; its times are left to the store."""
    return [(name, value) for name in _AUDIT if (value := getattr(which, name)) is not None]


def by_state(query: Query) -> tuple[list[Query], list[Query]]:
    """Returns what to ask of the live table and of history. Members of a join, or of a retry, are asked for state by
    state: their index has the state before the id, so that the few of one state are not looked for among a million
    others."""
    if not query.by_state:
        return [query], [query]
    named = query.states or tuple(State)
    live, history = (
        [replace(query, states=(state,)) for state in named if state in among] for among in (LIVE, HISTORY)
    )
    return live, history


@dataclass(slots=True, frozen=True)
class Dialect:
    """What the databases write differently. ``any_of`` and ``none_of`` hold a column against a list of values,
    ``within`` against another query; ``since`` and ``until`` narrow failures down by their times: 0 is the time, 1 one
    that is ``SIDE_BY_SIDE`` beyond it."""

    mark: str  # of a parameter, before its number
    any_of: str
    none_of: str
    within: str
    since: str
    until: str
    letters_before: str  # a dead letter
    walked: str = ""  # keeps a column's index from being used: rows are walked by their number


class Where:
    """What is asked for, as text; values are always parameters. ``first`` is a parameter of what stands before it: how
    long a document of a page may be."""

    def __init__(self, dialect: Dialect, wanted: Iterable[Condition] = (), first: int | None = None) -> None:
        self.dialect = dialect
        self.sql = ""
        self.args: list[Any] = [] if first is None else [first]
        for column, value in wanted:
            self.add(f" and {column} = {{}}", value)

    def add(self, text: str, *values: Any) -> Where:
        marks = [f"{self.dialect.mark}{len(self.args) + nth}" for nth, _ in enumerate(values, 1)]
        self.sql += text.format(*marks)
        self.args += values
        return self

    def any_of(self, column: str, values: Iterable[Any]) -> Where:
        return self.add(self.dialect.any_of.replace("column", column), list(values))

    def none_of(self, column: str, values: Iterable[Any]) -> Where:
        return self.add(self.dialect.none_of.replace("column", column), list(values))


class Filters:
    """The filters of one database."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def where(self, wanted: Iterable[Condition] = (), first: int | None = None) -> Where:
        return Where(self.dialect, wanted, first)

    def failed(self, which: FailureFilter, first: int | None = None) -> Where:
        """Returns the filter of tasks that are failed now."""
        where = self.where(conditions(which), first)
        if which.ids is not None:
            where.any_of("id", which.ids)
        if which.since is not None:
            where.add(f" {self.dialect.since}", which.since, which.since - SIDE_BY_SIDE)
        if which.until is not None:
            where.add(f" {self.dialect.until}", which.until, which.until + SIDE_BY_SIDE)
        return where

    def between(self, which: FailureFilter, after: int, upto: int | None, first: int | None = None) -> Where:
        """Returns the same between two places in the order of failures."""
        where = self.failed(which, first).add(" and failed_seq > {}", after)
        return where if upto is None else where.add(" and failed_seq <= {}", upto)

    def count_failed(self, which: FailureFilter) -> tuple[str, Where]:
        """Returns the statement that counts them, and what to append to it."""
        wanted = by_totals(which)
        if wanted is None:
            return "count_failed", self.failed(which)
        alone = by_one(wanted)
        return ("sum_failed", self.where(wanted)) if alone is None else ("sum_by", self.where(alone))

    def cancelled(
        self, which: FailureFilter, after: int = 0, upto: int | None = None, *, among: str = "d"
    ) -> Where | None:
        """Returns the filter of cancelled tasks; None when nothing can match. ``among``: the tasks (h) that are looked
        at for their letters, or the dead letters (d) for their tasks."""
        wanted = of_cancelled(which, among)
        if wanted is None:
            return None
        where = self.where(wanted)
        if which.ids is not None:
            where.any_of("d.task_id" if among == "d" else "h.id", which.ids)
        for text, value in (
            (" and d.dead_at >= {}", which.since),
            (" and d.dead_at < {}", which.until),
            (" and d.seq > {}", after or None),
            (" and d.seq <= {}", upto),
        ):
            if value is not None:
                where.add(text, value)
        return where

    def audit(self, which: AuditFilter, first: int | None = None) -> Where:
        where = self.where(of_audit(which), first)
        if which.task_ids is not None:
            where.any_of("task_id", which.task_ids)
        # A list by number is walked by number, and only what is past its keep found by its age: an index of times would
        # be read from one end to the other, and sorted, for each page of a long stretch.
        by_number = f"{self.dialect.walked}at"
        for text, moment in (
            (f" and {by_number} >= {{}}", which.since),
            (f" and {by_number} < {{}}", which.until),
            (" and at < {}", which.older_than),
        ):
            if moment is not None:
                where.add(text, moment)
        return where

    def letters(self, query: Query) -> Where:
        where = self.where(of_query(query, errors=True, letters=True) or [], query.documents)
        if query.before is not None:
            where.add(f" {self.dialect.letters_before}", query.before)
        return where.add(" order by seq desc limit {}", query.limit)

    def live(self, query: Query, *, order: str = "id") -> Where | None:
        """Returns the filter of the live table; None when nothing there can match."""
        return self._tasks(query, chosen(query.states, LIVE), errors=True, order=order)

    def history(self, query: Query, since: datetime | None = None) -> Where | None:
        """The same of finished tasks; none that ended before ``since`` can be meant."""
        return self._tasks(query, chosen(query.states, HISTORY), errors=False, since=since)

    def records(self, collection: str, states: Sequence[str], ids: Sequence[str] | None, before: int | None) -> Where:
        where = self.where([("collection", collection)])
        if states:
            where.any_of("state", states)
        if ids is not None:
            where.any_of("id", ids)
        return where if before is None else where.add(" and seq < {}", before)

    def _tasks(
        self, query: Query, states: str | None, *, errors: bool, since: datetime | None = None, order: str = "id"
    ) -> Where | None:
        wanted = of_query(query, errors=errors)
        if states is None or wanted is None:
            return None
        where = self.where(wanted, query.documents).add(states)
        others = {"queue": query.not_queues, "kind": query.not_kinds, "task_group": query.not_groups}
        for column, values in others.items():
            if values:
                where.none_of(column, values)
        if since is not None:
            where.add(" and finished_at >= {}", since)
        if query.before is not None:
            where.add(" and id < {}", query.before)
        return where.add(f" order by {order} desc limit {{}}", query.limit)
