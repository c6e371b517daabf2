"""From what ``ops`` answers to what goes over the wire; payloads are masked for viewers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from redrive.api import models as m
from redrive.kernel.operation import Operation, Status, facts
from redrive.kernel.records import Record
from redrive.kernel.store import HoldRow, WorkerRow
from redrive.kernel.task import DeadLetter, State, Task, Timeline
from redrive.ops import access, approvals
from redrive.ops.access import Role
from redrive.ops.failed import BatchResult
from redrive.ops.groups import Group
from redrive.ops.operator import Operator
from redrive.ops.operator.control import Kind, Queue, Worker
from redrive.ops.why import Reason

T = TypeVar("T", Task, DeadLetter)
_COVERED = ("payload", "result", "progress")
_STACKS = ("error_stack", "stack")
_MESSAGES = ("error_message", "message", "text")


def task(found: Task, operator: Operator) -> m.TaskOut:
    shown: m.TaskOut = cover(m.TaskOut.model_validate(found), operator)
    return shown


def tasks(found: Sequence[Task], operator: Operator) -> list[m.TaskOut]:
    return [task(one, operator) for one in found]


def letters(found: Sequence[DeadLetter], operator: Operator) -> list[m.DeadLetterOut]:
    return [cover(m.DeadLetterOut.model_validate(one), operator) for one in found]


def cover(out: Any, operator: Operator, payload: Any = None, *, known: bool = True) -> Any:
    """A viewer sees no secrets of payloads, neither there nor quoted in a message, and no stacks. Where the payload is
    not ``known`` any more, nobody can say what a message quotes, and it is covered as a whole."""
    if operator.caller.role > Role.VIEWER:
        return out
    fields = operator.policy.mask_fields
    quoted = getattr(out, "payload", payload)
    values = {name: access.masked(getattr(out, name), fields) for name in _COVERED if hasattr(out, name)}
    values |= {
        name: access.scrubbed(values[name], quoted, fields) for name in ("result", "progress") if values.get(name)
    }
    values |= {name: None for name in _STACKS if hasattr(out, name)}
    texts = {name: str(getattr(out, name)) for name in _MESSAGES if getattr(out, name, None) is not None}
    shown = access.covered(list(texts.values()), quoted, fields) if known else [access.MASK] * len(texts)
    return out.model_copy(update=values | dict(zip(texts, shown, strict=True)))


def reasons(found: Sequence[Reason], task: Task, operator: Operator) -> list[m.ReasonOut]:
    return [cover(m.ReasonOut.model_validate(reason), operator, task.payload) for reason in found]


def attempts(found: Timeline, operator: Operator) -> list[m.AttemptOut]:
    payload, known = found.task.payload, found.task.state is not State.COMPLETED  # those keep no payload
    return [cover(m.AttemptOut.model_validate(attempt), operator, payload, known=known)
            for attempt in found.attempts]  # fmt: skip


def batch(result: BatchResult) -> m.BatchOut:
    skipped = [m.SkippedOut(task_id=task_id, reason=why) for task_id, why in result.skipped.items()]
    return m.BatchOut(
        batch_id=result.batch_id, matched=result.matched, retried=result.retried, would_retry=result.would_retry,
        skipped=skipped,
        dry_run=result.dry_run,
    )  # fmt: skip


async def groups(found: Sequence[Group], operator: Operator) -> list[m.GroupOut]:
    """Their messages are those of the sample task, and may quote its payload."""
    needed = [one.row.sample_task for one in found] if operator.caller.role <= Role.VIEWER else []
    samples = await operator.tasks.get_many(needed) if needed else {}
    kept = {task_id: sample.payload for task_id, sample in samples.items() if sample.state is not State.COMPLETED}
    return [
        cover(_group(one), operator, kept.get(one.row.sample_task), known=one.row.sample_task in kept) for one in found
    ]


def _group(found: Group) -> m.GroupOut:
    row = found.row
    return m.GroupOut(
        fingerprint=row.fingerprint, status=found.status, count=row.count, failed=found.failed, code=row.code,
        reason=row.reason, failure_type=row.failure_type, message=row.message, kinds=found.kinds,
        first_seen=row.first_seen, last_seen=row.last_seen, sample_task=row.sample_task, trend=found.trend,
        note=found.note, owner=found.owner, muted_until=found.muted_until, resolved_at=found.resolved_at,
        resolved_by=found.resolved_by,
    )  # fmt: skip


def operation(record: Record) -> m.OperationOut:
    found = Operation.of(record)
    canary = None if found.canary is None else m.CanaryOut.model_validate(found.canary)
    return m.OperationOut(
        id=found.id, action=found.action, status=found.status, filter=facts(found.which), actor=found.actor,
        reason=found.reason, total=found.total, done=found.done, skipped=found.skipped,
        progress=_progress(found), rate=found.rate, canary=canary,
        stop_on_return=found.stop_on_return, plan_token=found.plan, approval_id=found.approval, note=found.note,
        created_at=record.created_at, updated_at=record.updated_at,
    )  # fmt: skip


def _progress(operation: Operation) -> float:
    if operation.status is Status.COMPLETED or not operation.total:
        return 1.0
    return min((operation.done + operation.skipped) / operation.total, 1.0)


def approval(record: Record) -> m.ApprovalOut:
    body = record.body
    return m.ApprovalOut(
        id=record.id, state=record.state, operation_id=body["operation"], action=body["action"], filter=body["filter"],
        total=body["total"], needed=body["needed"], requested_by=body["requested_by"], reason=body["reason"],
        expires_at=approvals.expires_at(record), decided_by=body["decided_by"], created_at=record.created_at,
    )  # fmt: skip


def worker(found: Worker) -> m.WorkerOut:
    values = {name: getattr(found.row, name) for name in WorkerRow.__dataclass_fields__}
    return m.WorkerOut(**{**values, "queues": list(found.row.queues)}, alive=found.alive)


def queue(found: Queue) -> m.QueueOut:
    return m.QueueOut(name=found.name, paused=_hold(found.paused), workers=found.workers, totals=found.totals)


def kind(found: Kind) -> m.KindOut:
    limit = found.limit
    return m.KindOut(
        name=found.name, paused=_hold(found.paused), totals=found.totals, dead_letters=found.totals["failed"],
        concurrency=None if limit is None else limit.concurrency,
        rate_limit_ms=None if limit is None else limit.rate_ms,
        running=limit.running if limit is not None and limit.concurrency is not None else None,
        limited_by=None if limit is None else limit.actor,
    )  # fmt: skip


def _hold(found: HoldRow | None) -> m.HoldOut | None:
    return None if found is None else m.HoldOut.model_validate(found)
