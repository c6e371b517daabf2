"""Turns filters into SQL conditions: only what is asked for is in the text, so that each can use its index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
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


def where(wanted: list[Condition], mark: Callable[[int], str], first: int = 1) -> tuple[str, list[Any]]:
    """Returns ``and column = ?`` for each; ``mark`` is how the driver writes its nth parameter."""
    texts = [f" and {column} = {mark(first + nth)}" for nth, (column, _) in enumerate(wanted)]
    return "".join(texts), [value for _, value in wanted]
