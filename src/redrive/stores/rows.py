"""Converts rows to values of the kernel, for all SQL stores. Columns arrive in their own types (ids, times, JSON); most
are called as the fields are."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import Any, TypeVar
from uuid import UUID

from redrive.ids import from_text, is_id
from redrive.kernel.circuit import CircuitRow
from redrive.kernel.failure_filter import FailedCount, FailedRef, TaskStatus
from redrive.kernel.figures import CircuitFigures, Figures, KindFigures
from redrive.kernel.joins import Join
from redrive.kernel.payload import CUT, page_text, readable
from redrive.kernel.ports.store import CauseRow, HoldRow, LimitRow, ScheduleRow, WorkerLeases, WorkerRow
from redrive.kernel.reads import CauseRanking, RankedCause
from redrive.kernel.records import Record
from redrive.kernel.task import Attempt, AuditRow, DeadLetter, State, Task

Row = Mapping[str, Any]
T = TypeVar("T")


def identity(value: Any) -> UUID:
    """Returns an id of a database that has them as ids or as text. Text that is none (others may write to the file) is
    shown as one that is made of it: one such row must not make a whole list unreadable."""
    if isinstance(value, UUID):
        return value
    return from_text(value) if is_id(value) else UUID(bytes=sha256(value.encode()).digest()[:16])


def status(row: Row) -> TaskStatus:
    task_id, state, *rest = row.values()
    return TaskStatus(identity(task_id), State(state), *rest)


def join(row: Row) -> Join:
    return Join(**{**row, "id": identity(row["id"]), "open": bool(row["open"])})


def failed_refs(found: Iterable[Row]) -> list[FailedRef]:
    """Returns rows of id, place, cause and time. What cannot be named cannot be meant."""
    return [
        FailedRef(identity(task_id), *rest)
        for task_id, *rest in (row.values() for row in found)
        if isinstance(task_id, UUID) or is_id(task_id)
    ]


def each_once(found: Sequence[FailedRef]) -> list[FailedRef]:
    """Returns these without those whose id has a newer row in history."""
    in_time = sorted(found, key=lambda one: (one.failed_seq or 0, one.failed_at))
    return list({one.id: one for one in in_time}.values())


MOST_CAUSES_COUNTED = 10_000


def ranking(found: Sequence[Any], total: int) -> CauseRanking:
    """Returns causes in their order, and how many there are, as far as they were counted."""
    causes = [RankedCause(row["fingerprint"], row["failed"], row["key"]) for row in found]
    return CauseRanking(causes, total, total >= MOST_CAUSES_COUNTED)


def after_prefix(prefix: str) -> str:
    """Returns where fingerprints end that begin so: they are written in hexadecimal digits."""
    return f"{prefix}g"


def document(row: Row, name: str, as_text: bool) -> Any:
    """Returns a JSON column: its value, or for pages its text, or that it was left out."""
    found = row.get(name)
    if not as_text:
        return readable(found)
    if found is None:
        return CUT if row.get(f"has_{name}") else None
    return page_text(found)


def _text(row: Row, name: str) -> Any:
    """Returns a text column that a page may have left out."""
    found = row.get(name)
    return CUT if found is None and row.get(f"has_{name}") else found


@cache
def _names(shape: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(shape))


def _filled(shape: type[T], row: Row, **given: Any) -> T:
    """Returns a value whose fields are ``given``, or else the columns of their names; the rest are as by default."""
    names = _names(shape)  # type: ignore[arg-type] # a class can be hashed
    return shape(**{name: row[name] for name in names if name not in given and name in row}, **given)


def task(row: Row, as_text: bool = False) -> Task:
    """Returns a task from a row of the live table or of history: columns that one of them lacks stay None. ``as_text``:
    a row of a page."""
    state = State(row["state_name"] if "state_name" in row else row["state"])
    return _filled(
        Task,
        row,
        id=identity(row["id"]),
        state=state,
        payload=document(row, "payload", as_text),
        group=row["task_group"],
        timeout=None if row["timeout_ms"] is None else row["timeout_ms"] / 1000,
        lease_token=row["lease_token"] if state is State.RUNNING else None,
        progress=document(row, "progress", as_text),
        memo=readable(row.get("memo")),
        error_message=_text(row, "error_message") or _text(row, "cancel_reason"),
        error_stack=_text(row, "error_stack"),
        error_summary=readable(row.get("error_summary")),
        facts=readable(row.get("facts")),
        result=document(row, "result", as_text),
        forgotten=bool(row.get("forgotten")),
    )


def attempt(row: Row) -> Attempt:
    return _filled(Attempt, row, summary=readable(row["error_summary"]))


def dead_letter(row: Row, as_text: bool = False) -> DeadLetter:
    return _filled(
        DeadLetter,
        row,
        id=identity(row["id"]),
        group=row["task_group"],
        payload=document(row, "payload", as_text),
        error_message=_text(row, "error_message"),
        error_summary=readable(row["error_summary"]),
    )


def audit(row: Row, as_text: bool = False) -> AuditRow:
    return _filled(
        AuditRow,
        row,
        before=document(row, "before", as_text),
        after=document(row, "after", as_text),
        salt=None if row["salt"] is None else str(row["salt"]),
    )


def cause(row: Row) -> CauseRow:
    return _filled(CauseRow, row, count=row["n"], summary=readable(row["error_summary"]))


def failed_count(row: Row) -> FailedCount:
    return _filled(FailedCount, row, group=row["task_group"] or None)


def record(row: Row) -> Record:
    return _filled(Record, row, body=readable(row["body"]))


def hold(row: Row) -> HoldRow:
    return _filled(HoldRow, row)


def limit(row: Row) -> LimitRow:
    return _filled(LimitRow, row)


def circuit(row: Row) -> CircuitRow:
    return _filled(CircuitRow, row, kinds=tuple(row["kinds"]), open=bool(row["open"]))


def worker(row: Row) -> WorkerRow:
    return _filled(
        WorkerRow,
        row,
        queues=tuple(row["queues"]),
        stopping=bool(row["stopping"]),
        every=row["beat_ms"] / 1000,
        hears=row["beats_ms"] is not None,
        stalled=row["stalled_ms"] / 1000,
        dead=row["dead_at"] is not None,
    )


def worker_leases(row: Row) -> WorkerLeases:
    return _filled(WorkerLeases, row)


def schedule(row: Row) -> ScheduleRow:
    return _filled(ScheduleRow, row)


# Reads the document that both stores answer with when they are asked for figures.

LAST_S = 253_402_300_799.0  # the end of the year 9999
MOST_VALUES = 500  # of codes and of failure types


def read_figures(text: str) -> Figures:
    """Returns the figures of such a document."""
    found: dict[str, Any] = json.loads(text)
    operations = {state: n for collection, state, n in found["records"] if collection == "operation"}
    return Figures(
        now=_time(found["now"]),
        kinds=[_kind(row) for row in found["totals"]],
        oldest={(queue, kind): max(float(age), 0.0) for queue, kind, age in found["oldest"]},
        failed_by_code=_sums(found["failed"], "code"),
        failed_by_type=_sums(found["failed"], "type"),
        causes=found["causes"],
        workers=[_worker(row) for row in found["workers"]],
        paused_queues=found["paused"],
        paused_kinds=found["paused_kinds"],
        circuits=[CircuitFigures(name, tuple(kinds), age, opened) for name, kinds, age, opened in found["circuits"]],
        operations=operations,
        approvals=sum(n for collection, _, n in found["records"] if collection == "approval"),
        late_schedules=found["late"],
        schedule_lateness=max(float(found["lateness"] or 0), 0.0),
        expired=found["expired"],
        unsealed=found["unsealed"],
        unsealed_age=max(float(found["unsealed_age"] or 0), 0.0),
        horizon=found["horizon"],
        alerts={name: (version, body) for name, version, body in found["alerts"] if isinstance(body, dict)},
    )


def _kind(row: list[Any]) -> KindFigures:
    queue, kind, *numbers, letters = row
    return KindFigures(queue, kind, dict(zip(State, numbers, strict=True)), letters)


def _sums(rows: list[Any], wanted: str) -> dict[str, int]:
    return {value: n for dimension, value, n in rows if dimension == wanted and n}


def _worker(row: list[Any]) -> WorkerRow:
    name, host, pid, queues, concurrency, running, version, started, seen, stopping, beat_ms, dead = row
    times = _time(started), _time(seen)
    every, served = beat_ms / 1000, tuple(queues)
    return WorkerRow(
        name, host, pid, served, concurrency, running, version, *times, bool(stopping), every, dead=bool(dead)
    )


def _time(seconds: float) -> datetime:
    """Returns a time; one that somebody has written by hand may be beyond all calendars."""
    return datetime.fromtimestamp(min(max(float(seconds), 0.0), LAST_S), UTC)
