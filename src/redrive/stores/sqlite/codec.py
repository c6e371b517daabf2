"""Converts rows of SQLite to what the stores' common row mapping expects: ids, times and lists in their own types."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from redrive.ids import from_text, is_id
from redrive.kernel.circuit import CircuitRow
from redrive.kernel.failure_filter import FailedCount, FailedRef
from redrive.kernel.ports.store import CauseRow, HoldRow, LimitRow, ScheduleRow, WorkerLeases, WorkerRow
from redrive.kernel.records import Record
from redrive.kernel.task import Attempt, AuditRow, DeadLetter, Task
from redrive.stores import rows as common
from redrive.stores.sqlite.session import to_datetime

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
        "next_at",
        "last_at",
        "started_at",
        "seen_at",
        "updated_at",
        "expires_at",
        "erased_at",
        "first_ends",
        "last_ends",
    }
)
FIRST_SHOWN_TIME, LAST_SHOWN_TIME = datetime(2, 1, 1, tzinfo=UTC), datetime(9998, 1, 1, tzinfo=UTC)
_IDS = frozenset({"task_id", "sample_task", "lease_token", "join_id", "probe", "token"})


def task(row: sqlite3.Row, as_text: bool = False) -> Task:
    values = _typed(row)
    values["id"] = _id(values["id"])
    values["state_name"] = values["state"]
    return common.task(values, as_text)


def attempt(row: sqlite3.Row) -> Attempt:
    return common.attempt(_typed(row))


def dead_letter(row: sqlite3.Row, as_text: bool = False) -> DeadLetter:
    values = _typed(row)
    values["id"] = _id(values["id"])
    return common.dead_letter(values, as_text)


def audit(row: sqlite3.Row, as_text: bool = False) -> AuditRow:
    return common.audit(_typed(row), as_text)


def cause(row: sqlite3.Row) -> CauseRow:
    return common.cause(_typed(row))


def failed_ref(row: sqlite3.Row) -> FailedRef:
    values = _typed(row)
    return FailedRef(UUID(values["id"]), values["failed_seq"], values["error_fingerprint"], values["failed_at"])


def failed_count(row: sqlite3.Row) -> FailedCount:
    return common.failed_count(_typed(row))


def record(row: sqlite3.Row) -> Record:
    return common.record(_typed(row))


def hold(row: sqlite3.Row) -> HoldRow:
    return common.hold(_typed(row))


def limit(row: sqlite3.Row) -> LimitRow:
    return common.limit(_typed(row))


def circuit(row: sqlite3.Row) -> CircuitRow:
    values = _typed(row)
    values["kinds"] = json.loads(values["kinds"])
    return common.circuit(values)


def schedule(row: sqlite3.Row) -> ScheduleRow:
    return common.schedule(_typed(row))


def worker(row: sqlite3.Row) -> WorkerRow:
    values = _typed(row)
    values["queues"] = json.loads(values["queues"])
    values["stopping"] = bool(values["stopping"])
    return common.worker(values)


def worker_leases(row: sqlite3.Row) -> WorkerLeases:
    return common.worker_leases(_typed(row))


def _typed(row: sqlite3.Row) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in row.keys():  # noqa: SIM118 - a Row iterates over its values
        value = row[name]
        if value is not None:
            if name in _TIMES:
                value = _time(value)
            elif name in _IDS:
                value = _id(value)
        values[name] = value
    return values


def _time(value: int) -> datetime:
    """Returns a time; one that the calendar does not have is shown as the last one that it safely has."""
    try:
        return to_datetime(value)
    except OverflowError:
        return LAST_SHOWN_TIME if value > 0 else FIRST_SHOWN_TIME


def _id(text: str) -> UUID:
    """Returns an id; something that is none (others may write to the file) is shown as one that is made of it: one such
    row must not make a whole list unreadable."""
    return from_text(text) if is_id(text) else UUID(bytes=sha256(text.encode()).digest()[:16])
