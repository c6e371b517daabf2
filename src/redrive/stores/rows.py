"""Converts rows to values of the kernel, for all SQL stores. Columns arrive in their own types (ids, times, JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
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


def task(row: Row, as_text: bool = False) -> Task:
    """Returns a task from a row of the live table or of history: columns that one of them lacks stay None. ``as_text``:
    a row of a page."""
    get = row.get
    state = State(row["state_name"] if "state_name" in row else row["state"])
    return Task(
        id=identity(row["id"]),
        kind=row["kind"],
        queue=row["queue"],
        state=state,
        payload=document(row, "payload", as_text),
        priority=row["priority"],
        attempt_count=row["attempt_count"],
        max_attempts=row["max_attempts"],
        group=row["task_group"],
        scope=row["scope"],
        trace_id=row["trace_id"],
        idempotency_key=row["idempotency_key"],
        timeout=None if row["timeout_ms"] is None else row["timeout_ms"] / 1000,
        created_at=row["created_at"],
        run_at=get("run_at"),
        next_attempt_at=get("next_attempt_at"),
        last_attempt_at=row["last_attempt_at"],
        lease_token=row["lease_token"] if state is State.RUNNING else None,
        lease_expires_at=get("lease_expires_at"),
        worker_id=row["worker_id"],
        cancel_requested_at=get("cancel_requested_at"),
        paused_by=get("paused_by"),
        progress=document(row, "progress", as_text),
        memo=readable(get("memo")),
        error_code=get("error_code"),
        error_reason=get("error_reason"),
        failure_type=get("failure_type"),
        error_message=_text(row, "error_message") or _text(row, "cancel_reason"),
        error_stack=_text(row, "error_stack"),
        error_fingerprint=get("error_fingerprint"),
        error_summary=readable(get("error_summary")),
        feature=get("feature"),
        facts=readable(get("facts")),
        join_id=get("join_id"),
        failed_at=get("failed_at"),
        failed_seq=get("failed_seq"),
        dead_reason=get("dead_reason"),
        replay_count=row["replay_count"],
        last_replayed_at=get("last_replayed_at"),
        last_replayed_by=get("last_replayed_by"),
        last_replayed_reason=get("last_replayed_reason"),
        last_replayed_bulk_id=get("last_replayed_bulk_id"),
        finished_at=get("finished_at"),
        execution_ms=get("execution_ms"),
        result=document(row, "result", as_text),
        erased_at=get("erased_at"),
        forgotten=bool(get("forgotten")),
    )


def attempt(row: Row) -> Attempt:
    return Attempt(
        row["task_id"],
        row["attempt"],
        row["at"],
        row["code"],
        row["reason"],
        row["failure_type"],
        row["message"],
        row["stack"],
        row["fingerprint"],
        row["worker_id"],
        row["execution_ms"],
        row["replay"],
        readable(row["error_summary"]),
        row["peer"],
        row["build"],
    )


def dead_letter(row: Row, as_text: bool = False) -> DeadLetter:
    return DeadLetter(
        id=identity(row["id"]),
        task_id=row["task_id"],
        dead_at=row["dead_at"],
        reason=row["reason"],
        kind=row["kind"],
        queue=row["queue"],
        group=row["task_group"],
        scope=row["scope"],
        trace_id=row["trace_id"],
        payload=document(row, "payload", as_text),
        attempt_count=row["attempt_count"],
        max_attempts=row["max_attempts"],
        replay_count=row["replay_count"],
        error_code=row["error_code"],
        error_reason=row["error_reason"],
        failure_type=row["failure_type"],
        error_message=_text(row, "error_message"),
        error_fingerprint=row["error_fingerprint"],
        error_summary=readable(row["error_summary"]),
    )


def audit(row: Row, as_text: bool = False) -> AuditRow:
    return AuditRow(
        row["id"],
        row["at"],
        row["actor"],
        row["action"],
        row["reason"],
        row["task_id"],
        row["bulk_id"],
        row["target"],
        document(row, "before", as_text),
        document(row, "after", as_text),
        row["kind"],
        row["scope"],
        row["trace_id"],
        None if row["salt"] is None else str(row["salt"]),
        row["erased"],
    )


def cause(row: Row) -> CauseRow:
    return CauseRow(
        row["fingerprint"],
        row["n"],
        row["code"],
        row["reason"],
        row["failure_type"],
        row["message"],
        row["kind"],
        row["first_seen"],
        row["last_seen"],
        row["sample_task"],
        readable(row["error_summary"]),
    )


def failed_count(row: Row) -> FailedCount:
    return FailedCount(
        row["kind"],
        row["queue"],
        row["task_group"] or None,
        row["error_code"],
        row["error_reason"],
        row["failure_type"],
        row["dead_reason"],
        row["fingerprint"],
        row["n"],
    )


def record(row: Row) -> Record:
    return Record(
        row["collection"],
        row["id"],
        row["state"],
        row["version"],
        readable(row["body"]),
        row["created_at"],
        row["updated_at"],
        row["seq"],
        row["expires_at"],
    )


def hold(row: Row) -> HoldRow:
    return HoldRow(row["target"], row["name"], row["actor"], row["reason"], row["at"])


def limit(row: Row) -> LimitRow:
    return LimitRow(row["kind"], row["concurrency"], row["rate_ms"], row["running"], row["actor"], row["next_at"])


def circuit(row: Row) -> CircuitRow:
    return CircuitRow(
        row["name"],
        row["version"],
        tuple(row["kinds"]),
        bool(row["open"]),
        row["since"],
        row["until"],
        row["reason"],
        row["actor"],
        row["failed_probes"],
        row["opened"],
        row["probe"],
        row["token"],
    )


def worker(row: Row) -> WorkerRow:
    return WorkerRow(
        row["id"],
        row["host"],
        row["pid"],
        tuple(row["queues"]),
        row["concurrency"],
        row["running"],
        row["version"],
        row["started_at"],
        row["seen_at"],
        bool(row["stopping"]),
        row["beat_ms"] / 1000,
        row["beats_ms"] is not None,
        row["stalled_ms"] / 1000,
        row["drain_at"],
        row["build"],
        row["dead_at"] is not None,
    )


def worker_leases(row: Row) -> WorkerLeases:
    return WorkerLeases(
        row["worker_id"], row["queue"], row["tasks"], row["earlier"], row["first_ends"], row["last_ends"]
    )


def schedule(row: Row) -> ScheduleRow:
    return ScheduleRow(
        row["name"],
        row["owner"],
        row["kind"],
        row["cron"],
        row["timezone"],
        row["missed"],
        row["queue"],
        row["payload"],
        row["priority"],
        row["max_attempts"],
        row["next_at"],
        row["last_at"],
    )


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
