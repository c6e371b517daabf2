"""What the customer of a remote batch is told."""

from __future__ import annotations

from collections.abc import Mapping

from redrive.batches.batch import BatchState, ItemState
from redrive.batches.remote.model import RemoteBatch, no_items
from redrive.kernel.erase import ERASED
from redrive.kernel.task import NewTask
from redrive.webhooks import event_task
from redrive.webhooks.events import DEFAULT_ACCOUNT


def notice(
    batch: RemoteBatch,
    state: BatchState,
    items: Mapping[ItemState, int],
    captured: int,
    released: int,
    reason: str | None = None,
    unknown: int = 0,
) -> NewTask:
    """Returns the task that tells the customer what became of a batch: once for each round, by its id. ``items`` always
    has every state: whoever reads it need not ask which are there. ``unknown``: those of them that ended without the
    provider's word."""
    data = {
        "batch": str(batch.id),
        "name": batch.name,
        "key": batch.key,
        "meta": batch.meta,
        "state": state.value,  # plain JSON, which is written without Pydantic
        "round": batch.round,
        "items": {item.value: n for item, n in (no_items() | dict(items)).items()},
        "unknown": unknown,
        "account": batch.account,
        "captured": captured,
        "released": released,
        "reason": reason or batch.reason,
    }
    return event_task(
        f"batch.{state}",
        data,
        batch.account or DEFAULT_ACCOUNT,
        f"batch-{batch.id}-{batch.round}",
        batch.webhook_url,
        None if (batch.scope or "").startswith(f"{ERASED}:") else batch.scope,
    )
