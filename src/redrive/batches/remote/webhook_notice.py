"""What the customer of a remote batch is told."""

from __future__ import annotations

from typing import Any

from redrive.batches.batch import BatchState
from redrive.batches.remote.model import ITEM_STATES, RemoteBatch
from redrive.kernel.task import NewTask
from redrive.webhooks import event_task


def notice(
    batch: RemoteBatch, state: BatchState, items: Any, captured: int, released: int, reason: str | None = None
) -> NewTask:
    """Returns the task that tells the customer what became of a batch: once for each round, by its id. ``items`` always
    has every state: whoever reads it need not ask which are there."""
    data = {
        "batch": str(batch.id),
        "name": batch.name,
        "key": batch.key,
        "meta": batch.meta,
        "state": state.value,  # plain JSON, which is written without Pydantic
        "round": batch.round,
        "items": dict.fromkeys(ITEM_STATES, 0) | dict(items),
        "account": batch.account,
        "captured": captured,
        "released": released,
        "reason": reason or batch.reason,
    }
    given = {"account": batch.account} if batch.account else {}
    return event_task(
        f"batch.{state}", data, event_id=f"batch-{batch.id}-{batch.round}", url=batch.webhook_url, **given
    )
