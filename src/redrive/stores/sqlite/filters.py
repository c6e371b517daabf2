"""Filters as SQL: only those that are asked for, so that each can use its index. Values are always parameters."""

from __future__ import annotations

from typing import Any

from redrive.kernel.store import Query
from redrive.kernel.task import HISTORY, LIVE, State

_SHARED = {
    "kind": " and kind = ?",
    "queue": " and queue = ?",
    "group": " and task_group = ?",
    "scope": " and scope = ?",
    "trace_id": " and trace_id = ?",
}
_ERRORS = {
    "error_code": " and error_code = ?",
    "error_reason": " and error_reason = ?",
    "fingerprint": " and error_fingerprint = ?",
}
# Literals, not parameters: SQLite uses a partial index only when it can see the state in the statement.
_STATE = {state: f"'{state.value}'" for state in State}

Filter = tuple[str, list[Any]] | None


def live(query: Query) -> Filter:
    """What to append for the live table, or None when nothing there can match."""
    states = [state for state in query.states if state in LIVE]
    if query.states and not states:
        return None
    sql, args = _equals(query, _SHARED | _ERRORS)
    return _newest(sql + _states(states), args, query)


def history(query: Query) -> Filter:
    states = [state for state in query.states if state in HISTORY]
    # Finished tasks carry no error: a filter on one cannot match them.
    if (query.states and not states) or any(getattr(query, name) is not None for name in _ERRORS):
        return None
    sql, args = _equals(query, _SHARED)
    return _newest(sql + _states(states), args, query)


def letters(query: Query) -> tuple[str, list[Any]]:
    sql, args = _equals(query, _SHARED | _ERRORS)
    if query.before is not None:
        sql += " and seq < (select b.seq from redrive_dead_letter b where b.id = ?)"
        args.append(str(query.before))
    return sql + " order by seq desc limit ?", [*args, query.limit]


def audit(limit: int, action: str | None, actor: str | None) -> tuple[str, list[Any]]:
    sql, args = "", list[Any]()
    if action is not None:
        sql, args = sql + " and action = ?", [*args, action]
    if actor is not None:
        sql, args = sql + " and actor = ?", [*args, actor]
    return sql + " order by id desc limit ?", [*args, limit]


def _newest(sql: str, args: list[Any], query: Query) -> tuple[str, list[Any]]:
    if query.before is not None:
        sql, args = sql + " and id < ?", [*args, str(query.before)]
    return sql + " order by id desc limit ?", [*args, query.limit]


def _equals(query: Query, columns: dict[str, str]) -> tuple[str, list[Any]]:
    given = {name: getattr(query, name) for name in columns if getattr(query, name) is not None}
    return "".join(columns[name] for name in given), list(given.values())


def _states(states: list[State]) -> str:
    if not states:
        return ""
    if len(states) == 1:
        return f" and state = {_STATE[states[0]]}"
    return f" and state in ({', '.join(_STATE[state] for state in states)})"
