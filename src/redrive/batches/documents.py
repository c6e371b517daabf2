"""Batches as documents, for HTTP and ``--json``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from redrive.batches.batch import Batch, RemotePart
from redrive.batches.task_batch_service import Failures
from redrive.ops.views import View
from redrive.ops.why import Reason

_SHOWN = (
    "name",
    "key",
    "meta",
    "scope",
    "open",
    "total",
    "pending",
    "completed",
    "failed",
    "cancelled",
    "created_at",
    "created_by",
    "ended_at",
    "succeeded_at",
    "cancelled_at",
    "cancelled_by",
    "cancel_reason",
    "cancel_operation",
    "fault",
)
_REMOTE = tuple(one.name for one in fields(RemotePart) if one.name not in ("state", "unit"))


def batch_document(batch: Batch) -> View:
    """Returns a batch; ``remote`` is what it has besides where its items are jobs at a provider."""
    part = batch.remote
    return View(
        id=str(batch.id),
        state=batch.state.value,
        **{name: getattr(batch, name) for name in _SHOWN},
        remote=None if part is None else View({name: getattr(part, name) for name in _REMOTE}),
    )


def waits_document(reasons: Iterable[Reason]) -> list[View]:
    """Returns what a batch waits for. None of it quotes a task."""
    return [View(code=one.code, text=one.text, fix=one.fix) for one in reasons]


def failures_document(found: Failures) -> dict[str, Any]:
    causes = [
        {
            "fingerprint": cause.row.fingerprint,
            "failed": cause.failed,
            "code": cause.row.code,
            "failure_type": cause.row.failure_type,
        }
        for cause in found.causes
    ]
    return {"by_type": found.by_type, "by_code": found.by_code, "causes": causes, "trend": _trend(found)}


def _trend(found: Failures) -> dict[str, Any] | None:
    trend = found.trend
    return None if trend is None else {name: getattr(trend, name) for name in ("since", "step_seconds", "by_type")}
