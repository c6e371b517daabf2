"""Query parameters that several routes share, under the names of the earlier system and our own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query

from redrive.kernel.audit import AuditFilter
from redrive.kernel.failed import Failures
from redrive.kernel.task import check_text
from redrive.ops.failed import parse_ids

Text = Annotated[str | None, Query(max_length=1000)]


def failures(
    episodeId: Text = None, jobKind: Text = None, traceId: Text = None, deadReason: Text = None, errorCode: Text = None,
    scope: Text = None, kind: Text = None, queue: Text = None, group: Text = None, errorReason: Text = None,
    failureType: Text = None, fingerprint: Text = None,
    taskIds: Annotated[list[str] | None, Query(max_length=500)] = None,
) -> Failures:  # fmt: skip
    """Which failed tasks: ``episodeId`` and ``scope``, ``jobKind`` and ``kind`` are the same."""
    return make_failures(
        kind=jobKind or kind, queue=queue, group=group, scope=episodeId or scope, trace_id=traceId,
        error_code=errorCode, error_reason=errorReason, failure_type=failureType, dead_reason=deadReason,
        fingerprint=fingerprint, ids=taskIds,
    )  # fmt: skip


def make_failures(ids: Sequence[str] | None = None, **texts: str | None) -> Failures:
    checked = {name: check_text(value or None, name) for name, value in texts.items()}
    split = [part for value in ids for part in value.split(",") if part.strip()] if ids is not None else None
    return Failures(**checked, ids=None if split is None else parse_ids([part.strip() for part in split]))


def audits(
    auditAction: Text = None, auditActor: Text = None, batchId: Text = None, episodeId: Text = None,
    jobKind: Text = None, traceId: Text = None, taskId: Text = None, scope: Text = None, kind: Text = None,
) -> AuditFilter:  # fmt: skip
    return make_audit(
        taskId, action=auditAction, actor=auditActor, batch_id=batchId, scope=episodeId or scope,
        kind=jobKind or kind, trace_id=traceId,
    )  # fmt: skip


def make_audit(task_id: str | None = None, **texts: str | None) -> AuditFilter:
    checked: dict[str, Any] = {name: check_text(value or None, name) for name, value in texts.items()}
    return AuditFilter(**checked, task_id=parse_ids([task_id])[0] if task_id else None)


WhichFailed = Annotated[Failures, Depends(failures)]
WhichAudit = Annotated[AuditFilter, Depends(audits)]
