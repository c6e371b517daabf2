"""Turns filters into SQL: only those that are asked for, so that each can use its index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

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
    where,
)
from redrive.stores.sqlite.session import to_micros

Filter = tuple[str, list[Any]] | None
_CANCELLED_IDS = {
    True: " and h.id in (select value from json_each(?))",
    False: " and d.task_id in (select value from json_each(?))",
}

# Few that match are found by their time: by their places, all that failed in the ten minutes before would be looked at,
# and after an outage these are very many. Many that match are soon met by their places.
_SINCE = """ and failed_at >= ? and failed_seq > max(coalesce((
  select s.failed_seq from redrive_task s where s.state = 'failed' and s.failed_at < ?
  order by s.failed_at desc limit 1), 0), (
  select case count(*) when 0 then 9223372036854775807 when 500 then 0 else min(few.failed_seq) - 1 end
  from (select m.failed_seq from redrive_task m where m.state = 'failed' and m.failed_at >= ? limit 500) few))"""
_UNTIL = """ and failed_at < ? and failed_seq < min(coalesce((
  select s.failed_seq from redrive_task s where s.state = 'failed' and s.failed_at >= ?
  order by s.failed_at limit 1), 9223372036854775807), (
  select case count(*) when 0 then 0 when 500 then 9223372036854775807 else max(few.failed_seq) + 1 end
  from (select m.failed_seq from redrive_task m where m.state = 'failed' and m.failed_at < ? limit 500) few))"""


_OTHERS = {
    " and queue not in (select value from json_each(?))": "not_queues",
    " and kind not in (select value from json_each(?))": "not_kinds",
    " and coalesce(task_group, '') not in (select value from json_each(?))": "not_groups",
}


def _mark(_nth: int) -> str:
    return "?"


def live(query: Query, *, few: bool = False) -> Filter:
    """Returns what to append for the live table, or None when nothing there can match. ``few``: there are not many of
    these states."""
    return _tasks(query, chosen(query.states, LIVE), errors=True, few=few)


def history(query: Query) -> Filter:
    return _tasks(query, chosen(query.states, HISTORY), errors=False)


def failed(which: FailureFilter) -> tuple[str, list[Any]]:
    sql, args = where(conditions(which), _mark)
    if which.ids is not None:
        sql += " and id in (select value from json_each(?))"
        args.append(json.dumps([str(task_id) for task_id in which.ids]))
    if which.since is not None:
        sql += _SINCE
        since = to_micros(which.since)
        args += [since, to_micros(which.since - SIDE_BY_SIDE), since]
    if which.until is not None:
        sql += _UNTIL
        until = to_micros(which.until)
        args += [until, to_micros(which.until + SIDE_BY_SIDE), until]
    return sql, args


def cancelled(which: FailureFilter, after: int = 0, upto: int | None = None, *, few: bool = True) -> Filter:
    """Returns what to append for cancelled tasks; None when nothing can match. ``few``: it is looked for among the
    tasks, not among the dead letters."""
    wanted = of_cancelled(which, "h" if few else "d")
    if wanted is None:
        return None
    sql, args = where(wanted, _mark)
    if which.ids is not None:
        sql += _CANCELLED_IDS[few]
        args.append(json.dumps([str(task_id) for task_id in which.ids]))
    for time, sign in ((which.since, ">="), (which.until, "<")):
        if time is not None:
            sql += f" and d.dead_at {sign} ?"
            args.append(to_micros(time))
    for bound, sign in ((after or None, ">"), (upto, "<=")):
        if bound is not None:
            sql += f" and d.seq {sign} ?"
            args.append(bound)
    return sql, args


def of_totals(which: FailureFilter) -> tuple[str, list[Any]]:
    """Returns what the totals by queue and kind can be narrowed down to."""
    return where([(name, value) for name in ("queue", "kind") if (value := getattr(which, name)) is not None], _mark)


def count_failed(which: FailureFilter) -> tuple[str, str, list[Any]]:
    """Returns the statement to use, what to append to it, and the values."""
    wanted = by_totals(which)
    if wanted is None:
        return "count_failed", *failed(which)
    alone = by_one(wanted)
    return ("sum_failed", *where(wanted, _mark)) if alone is None else ("sum_by", *where(alone, _mark))


def failed_totals(wanted: list[Condition]) -> tuple[str, list[Any]]:
    """Returns the filter of totals of what is failed now, and the values."""
    return where(wanted, _mark)


def letters(query: Query) -> tuple[str, list[Any]]:
    sql, args = where(of_query(query, errors=True, letters=True) or [], _mark)
    if query.before is not None:
        sql += " and seq < (select b.seq from redrive_dead_letter b where b.id = ?)"
        args.append(str(query.before))
    return sql + " order by seq desc limit ?", [*args, query.limit]


def audit(which: AuditFilter) -> tuple[str, list[Any]]:
    sql, args = where(of_audit(which), _mark)
    if which.task_ids is not None:
        sql += " and task_id in (select value from json_each(?))"
        args.append(json.dumps([str(task_id) for task_id in which.task_ids]))
    # A list by number is walked by number, and only what is past its keep found by its age: an index of times would be
    # read from one end to the other, and sorted, for each page of a long stretch.
    for column, moment in (("+at >=", which.since), ("+at <", which.until), ("at <", which.older_than)):
        if moment is not None:
            sql += f" and {column} ?"
            args.append(to_micros(moment))
    return sql, [str(value) if isinstance(value, UUID) else value for value in args]


def records(
    collection: str, states: Sequence[str], ids: Sequence[str] | None, limit: int, before: int | None
) -> tuple[str, list[Any]]:
    sql, args = "", list[Any]([collection])
    if states:
        sql += " and state in (select value from json_each(?))"
        args.append(json.dumps(list(states)))
    if ids is not None:
        sql += " and id in (select value from json_each(?))"
        args.append(json.dumps(list(ids)))
    if before is not None:
        sql += " and seq < ?"
        args.append(before)
    return sql + " order by seq desc limit ?", [*args, limit]


def _tasks(query: Query, states: str | None, *, errors: bool, few: bool = False) -> Filter:
    wanted = of_query(query, errors=errors)
    if states is None or wanted is None:
        return None
    sql, args = where(wanted, _mark)
    sql += states
    for text, others in _OTHERS.items():
        if names := getattr(query, others):
            sql, args = sql + text, [*args, json.dumps(names)]
    if query.before is not None:
        sql, args = sql + " and id < ?", [*args, str(query.before)]
    # By the index of a state, and then sorted, where it has few; by id, the others would be walked through for them.
    return sql + f" order by {'+' if few else ''}id desc limit ?", [*args, query.limit]
