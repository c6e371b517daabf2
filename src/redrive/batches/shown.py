"""Batches as documents, for HTTP and ``--json``."""

from __future__ import annotations

from typing import Any

from redrive.batches.batch import Batch
from redrive.batches.service import Failures

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


def batch_document(batch: Batch) -> dict[str, Any]:
    return {
        "id": str(batch.id),
        "state": batch.state.value,
        **{name: getattr(batch, name) for name in _SHOWN},
    }


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
    return {"by_type": found.by_type, "by_code": found.by_code, "causes": causes}
