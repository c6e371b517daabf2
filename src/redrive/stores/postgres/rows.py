"""Rows of PostgreSQL as values of the kernel, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from redrive.kernel.commit import Audit, Schedule
from redrive.kernel.machine import Event, Transition
from redrive.kernel.payload import decode
from redrive.kernel.store import GroupRow, HoldRow, LimitRow, ScheduleRow, WorkerRow
from redrive.kernel.task import Attempt, AuditRow, Claimed, DeadLetter, NewTask, State, Task

Row = Mapping[str, Any]

ACTIONS = {
    Event.REDRIVE: "TASK_RETRY",
    Event.CANCEL: "TASK_CANCEL",
    Event.PAUSE: "TASK_PAUSE",
    Event.RESUME: "TASK_RESUME",
}


def task(row: Row) -> Task:
    """A row of the live table or of history: columns that one of them lacks stay None."""
    get = row.get
    return Task(
        id=row["id"],
        kind=row["kind"],
        queue=row["queue"],
        state=State(row["state_name"]),
        payload=decode(row["payload"]),
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
        lease_token=row["lease_token"] if row["state_name"] == "running" else None,
        lease_expires_at=get("lease_expires_at"),
        worker_id=row["worker_id"],
        cancel_requested_at=get("cancel_requested_at"),
        paused_by=get("paused_by"),
        progress=decode(get("progress")),
        memo=decode(get("memo")),
        error_code=get("error_code"),
        error_reason=get("error_reason"),
        failure_type=get("failure_type"),
        error_message=get("error_message") or get("cancel_reason"),
        error_stack=get("error_stack"),
        error_fingerprint=get("error_fingerprint"),
        failed_at=get("failed_at"),
        replay_count=row["replay_count"],
        last_replayed_at=get("last_replayed_at"),
        last_replayed_by=get("last_replayed_by"),
        last_replayed_reason=get("last_replayed_reason"),
        finished_at=get("finished_at"),
        execution_ms=get("execution_ms"),
        result=decode(get("result")),
    )


def claimed(row: Sequence[Any], token: UUID) -> Claimed:
    """A row of ``redrive.claimed``, by position: this runs once per task in the hot loop."""
    timeout_ms = row[14]
    return Claimed(
        row[0], token, row[1], row[2], row[6], row[7], row[8], row[4], row[9], row[10], row[11], row[12], row[13],
        None if timeout_ms is None else timeout_ms / 1000, row[15], row[16],
    )  # fmt: skip


def columns(tasks: Sequence[NewTask]) -> list[Any]:
    """New tasks as the array arguments of ``redrive.enqueue``; a column without values is sent as null."""

    def column(values: list[Any]) -> list[Any] | None:
        return values if any(value is not None for value in values) else None

    return [
        [t.id for t in tasks],
        [t.kind for t in tasks],
        [t.queue for t in tasks],
        [t.payload for t in tasks],
        [t.priority for t in tasks],
        [t.max_attempts for t in tasks],
        column([t.delay for t in tasks]),
        column([t.run_at for t in tasks]),
        column([None if t.timeout is None else round(t.timeout * 1000) for t in tasks]),
        column([t.group for t in tasks]),
        column([t.scope for t in tasks]),
        column([t.trace_id for t in tasks]),
        column([t.idempotency_key for t in tasks]),
    ]


def moves(transitions: Sequence[Transition]) -> str:
    """Transitions as the argument of ``redrive.move``."""
    return json.dumps([_move(t) for t in transitions], separators=(",", ":"))


def _move(t: Transition) -> dict[str, Any]:
    rule = t.rule
    move: dict[str, Any] = {
        "id": str(t.task_id),
        "token": None if t.token is None else str(t.token),
        "fenced": rule.fenced,
        "expired": t.expired,
        "sources": [state.value for state in rule.sources],
        "event": t.event.value,
        "target": t.to.value,
        "delay": t.delay,
        "attempts": rule.attempts.value,
        "memo": None if t.memo is None else json.loads(t.memo),
        "result": None if t.result is None else json.loads(t.result),
        "ms": t.execution_ms,
        "dead": t.dead,
        "actor": t.actor,
        "action": ACTIONS.get(t.event),
        "reason": t.reason,
    }
    if t.failure is not None:
        f = t.failure
        move |= {"code": f.code, "cause": f.reason, "type": f.type.value, "message": f.message,
                 "stack": f.stack, "fingerprint": f.fingerprint}  # fmt: skip
    return move


def audits(rows: Sequence[Audit]) -> str:
    return json.dumps([
        {"actor": a.actor, "action": a.action, "reason": a.reason, "batch_id": a.batch_id,
         "task_id": None if a.task_id is None else str(a.task_id), "before": a.before, "after": a.after}
        for a in rows
    ])  # fmt: skip


def schedules(rows: Sequence[Schedule]) -> str:
    return json.dumps([
        {"name": s.name, "kind": s.kind, "cron": s.cron, "timezone": s.timezone, "missed": s.missed, "queue": s.queue,
         "payload": None if s.payload is None else json.loads(s.payload), "priority": s.priority,
         "max_attempts": s.max_attempts, "next_at": s.next_at.isoformat()}
        for s in rows
    ])  # fmt: skip


def attempt(row: Row) -> Attempt:
    return Attempt(
        row["task_id"], row["attempt"], row["at"], row["code"], row["reason"], row["failure_type"], row["message"],
        row["stack"], row["fingerprint"], row["worker_id"], row["execution_ms"], row["replay"],
    )  # fmt: skip


def dead_letter(row: Row) -> DeadLetter:
    return DeadLetter(
        id=row["id"], task_id=row["task_id"], dead_at=row["dead_at"], reason=row["reason"], kind=row["kind"],
        queue=row["queue"], group=row["task_group"], scope=row["scope"], trace_id=row["trace_id"],
        payload=decode(row["payload"]), attempt_count=row["attempt_count"], max_attempts=row["max_attempts"],
        replay_count=row["replay_count"], error_code=row["error_code"], error_reason=row["error_reason"],
        failure_type=row["failure_type"], error_message=row["error_message"],
        error_fingerprint=row["error_fingerprint"],
    )  # fmt: skip


def audit(row: Row) -> AuditRow:
    return AuditRow(
        row["id"], row["at"], row["actor"], row["action"], row["reason"], row["task_id"], row["batch_id"],
        row["target"], decode(row["before"]), decode(row["after"]),
    )  # fmt: skip


def group(row: Row) -> GroupRow:
    return GroupRow(
        row["fingerprint"], row["n"], row["code"], row["reason"], row["failure_type"], row["message"], row["kind"],
        row["first_seen"], row["last_seen"], row["sample_task"],
    )  # fmt: skip


def hold(row: Row) -> HoldRow:
    return HoldRow(row["target"], row["name"], row["actor"], row["reason"], row["at"])


def limit(row: Row) -> LimitRow:
    return LimitRow(row["kind"], row["concurrency"], row["rate_ms"], row["running"], row["actor"])


def worker(row: Row) -> WorkerRow:
    return WorkerRow(
        row["id"], row["host"], row["pid"], tuple(row["queues"]), row["concurrency"], row["running"], row["version"],
        row["started_at"], row["seen_at"], row["stopping"],
    )  # fmt: skip


def schedule(row: Row) -> ScheduleRow:
    return ScheduleRow(
        row["name"], row["owner"], row["kind"], row["cron"], row["timezone"], row["missed"], row["queue"],
        row["payload"], row["priority"], row["max_attempts"], row["next_at"], row["last_at"],
    )  # fmt: skip
