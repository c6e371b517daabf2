"""Log lines of operators' retries, beside the workers' lines about the same tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection
from uuid import UUID

from redrive.kernel.ports.store import Store

logger = logging.getLogger("redrive.ops")


async def log_retried(
    store: Store, task_ids: Collection[UUID], *, actor: str, reason: str | None, bulk_id: str | None = None
) -> None:
    """Writes one ``task.retried`` line for each of these, with who retried it and why."""
    if not task_ids or not logger.isEnabledFor(logging.INFO):
        return
    for task in (await store.statuses(task_ids)).values():
        logger.info(
            "%s retried %s",
            actor,
            task.id,
            extra={
                "event": "task.retried",
                "task_id": str(task.id),
                "kind": task.kind,
                "queue": task.queue,
                "attempt": task.attempt_count,
                "trace_id": task.trace_id,
                "actor": actor,
                "reason": reason,
                "bulk_id": bulk_id,
            },
        )
