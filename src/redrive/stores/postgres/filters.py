"""Turns filters into SQL with numbered parameters."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from redrive.ids import time_of
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Query
from redrive.kernel.task import HISTORY, LIVE
from redrive.stores.filters import (
    SIDE_BY_SIDE,
    Condition,
    by_one,
    by_totals,
    chosen,
    conditions,
    of_audit,
    of_cancelled,
    of_query,
)

_SINCE = """ and failed_at >= {} and failed_seq > coalesce((
  select s.failed_seq from redrive.task s where s.state = 'failed' and s.failed_at < {}
  order by s.failed_at desc limit 1), 0)"""
_UNTIL = """ and failed_at < {} and failed_seq < coalesce((
  select s.failed_seq from redrive.task s where s.state = 'failed' and s.failed_at >= {}
  order by s.failed_at limit 1), 9223372036854775807)"""


CLOCK_SKEW = timedelta(days=1)


class Where:
    """What is asked for, as text; values are always parameters. Where ``documents`` is given, it is the first one."""

    def __init__(self, wanted: list[Condition], documents: int | None = None) -> None:
        self.sql = ""
        self.args: list[Any] = [] if documents is None else [documents]
        for column, value in wanted:
            self.add(f" and {column} = {{}}", value)

    def add(self, text: str, *values: Any) -> Where:
        marks = [f"${len(self.args) + nth}" for nth, _ in enumerate(values, 1)]
        self.sql += text.format(*marks)
        self.args += values
        return self


def failed(which: FailureFilter, documents: int | None = None) -> Where:
    where = Where(conditions(which), documents)
    if which.ids is not None:
        where.add(" and id = any ({})", list(which.ids))
    if which.since is not None:
        where.add(_SINCE, which.since, which.since - SIDE_BY_SIDE)
    return where if which.until is None else where.add(_UNTIL, which.until, which.until + SIDE_BY_SIDE)


def cancelled(which: FailureFilter, after: int = 0, upto: int | None = None) -> Where | None:
    """Returns the filter of cancelled tasks; None when nothing can match."""
    wanted = of_cancelled(which, "d")
    if wanted is None:
        return None
    where = Where(wanted)
    if which.ids is not None:
        where.add(" and d.task_id = any ({})", list(which.ids))
    if which.since is not None:
        where.add(" and d.dead_at >= {}", which.since)
    if which.until is not None:
        where.add(" and d.dead_at < {}", which.until)
    if after:
        where.add(" and d.seq > {}", after)
    return where if upto is None else where.add(" and d.seq <= {}", upto)


def count_failed(which: FailureFilter) -> tuple[str, Where]:
    """Returns the statement to use, and what to append to it."""
    wanted = by_totals(which)
    if wanted is None:
        return "count_failed", failed(which)
    alone = by_one(wanted)
    return ("sum_failed", Where(wanted)) if alone is None else ("sum_by", Where(alone))


def audit(which: AuditFilter, documents: int | None = None) -> Where:
    where = Where(of_audit(which), documents)
    if which.task_ids is not None:
        where.add(" and task_id = any ({})", list(which.task_ids))
    for sign, moment in ((">=", which.since), ("<", which.until), ("<", which.older_than)):
        if moment is not None:
            where.add(f" and at {sign} {{}}", moment)
    return where


def live(query: Query) -> Where | None:
    return _tasks(query, chosen(query.states, LIVE), errors=True)


def history(query: Query) -> Where | None:
    return _tasks(query, chosen(query.states, HISTORY), errors=False, since=_begun(query))


def _begun(query: Query) -> datetime | None:
    """Returns before when no member of a join can have ended: days of history before it are left out. The time in its
    id is its maker's clock."""
    made = None if query.join is None else time_of(UUID(query.join))
    return None if made is None else made - CLOCK_SKEW


def letters(query: Query) -> Where:
    where = Where(of_query(query, errors=True, letters=True) or [], query.documents)
    if query.before is not None:
        where.add(" and seq < (select b.seq from redrive.dead_letter b where b.id = {})", query.before)
    return where.add(" order by seq desc limit {}", query.limit)


def _tasks(query: Query, states: str | None, *, errors: bool, since: datetime | None = None) -> Where | None:
    """Returns the filter of a table of tasks; None when nothing there can match."""
    wanted = of_query(query, errors=errors)
    if states is None or wanted is None:
        return None
    where = Where(wanted, query.documents).add(states)
    for column, others in (("queue", query.not_queues), ("kind", query.not_kinds)):
        if others:
            where.add(f" and {column} <> all ({{}})", list(others))
    if query.not_groups:
        where.add(" and (task_group <> all ({})) is not false", list(query.not_groups))
    if since is not None:
        where.add(" and finished_at >= {}", since)
    if query.before is not None:
        where.add(" and id < {}", query.before)
    return where.add(" order by id desc limit {}", query.limit)
