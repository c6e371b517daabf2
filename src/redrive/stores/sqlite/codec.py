"""Converts what SQLite holds from and to the types that the stores' common reads expect: times, ids and lists."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from redrive.stores.rows import identity
from redrive.stores.sqlite.session import to_datetime, to_micros

_TIMES = frozenset(
    {
        "since",
        "until",
        "created_at",
        "run_at",
        "next_attempt_at",
        "last_attempt_at",
        "lease_expires_at",
        "cancel_requested_at",
        "failed_at",
        "last_replayed_at",
        "finished_at",
        "at",
        "dead_at",
        "drain_at",
        "beating_since",
        "first_seen",
        "last_seen",
        "hour",
        "next_at",
        "last_at",
        "started_at",
        "seen_at",
        "updated_at",
        "expires_at",
        "erased_at",
        "ended_at",
        "succeeded_at",
        "first_ends",
        "last_ends",
    }
)
FIRST_SHOWN_TIME, LAST_SHOWN_TIME = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
_IDS = frozenset({"task_id", "sample_task", "lease_token", "join_id", "probe", "token"})
_LISTS = frozenset({"kinds", "queues"})


def encode(value: Any) -> Any:
    """Returns an argument as SQLite takes it: times in microseconds, ids as text, lists as JSON."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return to_micros(value)
    return json.dumps(value, default=str) if isinstance(value, list) else value


def typed(row: sqlite3.Row) -> dict[str, Any]:
    """Returns a row with times, ids and lists in their own types."""
    values: dict[str, Any] = {}
    for name in row.keys():  # noqa: SIM118 - a Row iterates over its values
        value = row[name]
        if value is not None:
            if name in _TIMES:
                value = _time(value)
            elif name in _IDS:
                value = identity(value)
            elif name in _LISTS:
                value = json.loads(value)
        values[name] = value
    return values


def _time(value: int) -> datetime:
    """Returns a time; one that the calendar does not have is shown as the last one that it safely has."""
    try:
        return to_datetime(value)
    except OverflowError:
        return LAST_SHOWN_TIME if value > 0 else FIRST_SHOWN_TIME
