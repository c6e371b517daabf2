"""Converts values of the kernel to arguments of the SQL functions, and claimed rows back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from redrive.kernel.audit import Audit, action_of
from redrive.kernel.commit import Schedule
from redrive.kernel.joins import NewJoin, as_document, check_joins
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import INSTEAD, Meets, Transition
from redrive.kernel.reactions import Landed
from redrive.kernel.task import Claimed, NewTask, State
from redrive.kernel.trace import split_trace


def claimed(row: Sequence[Any], token: UUID) -> Claimed:
    """Returns a row of ``redrive.claimed`` as a Claimed, by position: this runs once per task in the hot loop."""
    timeout_ms = row[14]
    task = Claimed(
        row[0],
        token,
        row[1],
        row[2],
        row[6],
        row[7],
        row[8],
        row[4],
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
        None if timeout_ms is None else timeout_ms / 1000,
        row[15],
        row[16],
        row[17],
        row[18],
        row[19],
    )
    if row[12] is not None:
        task.trace_id, task.trace_parent = split_trace(row[12])
    return task


def columns(tasks: Sequence[NewTask]) -> list[Any]:
    """Returns new tasks as the array arguments of ``redrive.enqueue``; a column without values is sent as null, and one
    value for all is sent once."""

    def column(values: list[Any]) -> list[Any] | None:
        return None if values.count(None) == len(values) else values

    return [
        [t.id for t in tasks],
        _once([t.kind for t in tasks]),
        _once([t.queue for t in tasks]),
        [t.payload for t in tasks],
        _once([t.priority for t in tasks]),
        _once([_attempts(t) for t in tasks]),
        column([t.delay for t in tasks]),
        column([t.run_at for t in tasks]),
        column([None if t.timeout is None else round(t.timeout * 1000) for t in tasks]),
        column([t.group for t in tasks]),
        column([t.scope for t in tasks]),
        column([t.trace_id for t in tasks]),
        column([t.idempotency_key for t in tasks]),
    ]


def declared(tasks: Sequence[NewTask]) -> list[bool] | None:
    """Returns of which the application declares the names, as a further array argument; None where of none."""
    return [t.declared for t in tasks] if any(t.declared for t in tasks) else None


def memberships(tasks: Sequence[NewTask]) -> list[Any]:
    """Returns the features of new tasks and the joins they are members of, as further array arguments."""
    return [[t.feature for t in tasks], [t.facts for t in tasks], [t.join for t in tasks]]


def some_belong(tasks: Sequence[NewTask]) -> bool:
    """Returns whether one of them is of a feature, has facts, or is a member of a join: then it is no producer's."""
    return any(task.own or task.feature or task.facts or task.join for task in tasks)


def joins(new: Sequence[NewJoin]) -> str:
    """Returns new joins as the argument of ``redrive.open_joins``; those that could not end are refused."""
    check_joins(new)
    return json.dumps(
        [
            {
                "id": str(join.id),
                "is_open": join.open,
                "on_complete": as_document(join.on_complete, "on_complete"),
                "on_success": as_document(join.on_success, "on_success"),
            }
            for join in new
        ]
    )


def landed(document: dict[str, Any]) -> Landed:
    """Returns what ``redrive.landing`` says about a task."""
    return Landed(
        UUID(document["id"]),
        State(document["was"]),
        State(document["state"]),
        document["feature"],
        document["facts"] or {},
        document["kind"],
        document["queue"],
        document["attempts"],
        document["max_attempts"],
        document["replays"],
        document["group"],
        document["scope"],
        document["trace_id"],
        None if document["join"] is None else UUID(document["join"]),
    )


def _attempts(task: NewTask) -> int:
    """Returns how often a task is tried; below zero where its kind's handler may say otherwise."""
    return -task.max_attempts if task.by_kind else task.max_attempts


def _once(values: list[Any]) -> list[Any]:
    return values[:1] if values.count(values[0]) == len(values) else values


def single(t: NewTask) -> list[Any]:
    """Returns one new task as the arguments of the ``redrive.enqueue`` for one."""
    return [
        t.kind,
        t.payload,
        t.queue,
        t.priority,
        _attempts(t),
        t.delay,
        t.run_at,
        t.timeout,
        t.group,
        t.scope,
        t.trace_id,
        t.id,
    ]


def moves(transitions: Sequence[Transition]) -> str:
    """Returns transitions as the argument of ``redrive.move``."""
    return json.dumps([_move(t) for t in transitions], separators=(",", ":"))


def _move(t: Transition) -> dict[str, Any]:
    rule = t.rule
    move: dict[str, Any] = {
        "id": str(t.task_id),
        "token": None if t.token is None else str(t.token),
        "fenced": rule.fenced,
        "expired": t.expired,
        "death": t.death,
        "cut_off": t.cut_off,
        "sources": [state.value for state in t.origins],
        "event": t.event.value,
        "target": t.to.value,
        "delay": t.delay,
        "attempts": rule.attempts.value,
        "memo": None if t.memo is None else json.loads(t.memo),
        "result": None if t.result is None else json.loads(t.result),
        "ms": t.execution_ms,
        "dead": t.dead,
        "actor": t.actor,
        "action": t.action or action_of(t.event),
        "reason": t.reason,
        "bulk_id": t.bulk_id,
        "seen": t.seen,
        "keep": t.keep,
    }
    # What the row may say against its target, and where it leads then; the function only looks.
    move |= {f"if_{meets}": INSTEAD[t.event, meets] for meets in Meets if (t.event, meets) in INSTEAD}
    if rule.quiet:
        move["quiet"] = True
    if t.forgotten:
        move["forgotten"] = True
    if t.failure is not None:
        f = t.failure
        move |= {
            "code": f.code,
            "cause": f.reason,
            "type": f.type.value,
            "message": f.message,
            "stack": f.stack,
            "fingerprint": f.fingerprint,
            "summary": f.summary,
        }
        if f.peer is not None:
            move["peer"] = f.peer
    return move


def audits(rows: Sequence[Audit]) -> str:
    return json.dumps(
        [
            {
                "actor": a.actor,
                "action": a.action,
                "reason": a.reason,
                "bulk_id": a.bulk_id,
                "task_id": None if a.task_id is None else str(a.task_id),
                "target": a.target,
                "scope": a.scope,
                "before": a.before,
                "after": a.after,
            }
            for a in rows
        ]
    )


def schedules(rows: Sequence[Schedule]) -> str:
    return json.dumps(
        [
            {
                "name": s.name,
                "kind": s.kind,
                "cron": s.cron,
                "timezone": s.timezone,
                "missed": s.missed,
                "queue": s.queue,
                "payload": None if s.payload is None else json.loads(s.payload),
                "priority": s.priority,
                "max_attempts": s.max_attempts,
                "next_at": s.next_at.isoformat(),
            }
            for s in rows
        ]
    )


def postings(given: Sequence[Posting]) -> str:
    """Returns movements of money as one document."""
    return json.dumps(
        [
            {
                "key": posting.key,
                "accounts": [account for account, _ in posting.entries],
                "amounts": [amount for _, amount in posting.entries],
                "note": posting.note,
            }
            for posting in given
        ]
    )
