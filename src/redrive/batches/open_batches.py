"""Batches that were left open: found, and cancelled after ``BATCH_OPEN_HOURS``; and what was agreed to cancel."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from redrive.batches.batch import FEATURE, Batch, of_row
from redrive.batches.cancel_batch import give_up, marking
from redrive.feature import Store
from redrive.kernel.operation import COLLECTION, Status

logger = logging.getLogger("redrive.batches")


async def forgotten(store: Store, hours: float) -> list[Batch]:
    """Returns open batches that nobody has added to for so long."""
    return [of_row(row) for row in await store.sql.feature_rows(FEATURE, "forgotten", hours)]


async def cancel_forgotten(store: Store, hours: float, stopping: Callable[[], bool]) -> None:
    """Cancels batches that were left open for so long: nobody will seal them."""
    for batch in await forgotten(store, hours):
        if stopping():
            return
        await give_up(store, batch.id, "redrive", f"it was left open for more than {hours:g} h")
        extra = {"event": "batch.forgotten", "batch_id": str(batch.id)}
        logger.warning("batch %s was left open, and is cancelled", batch.id, extra=extra)


async def mark_agreed(store: Store) -> None:
    """Closes batches whose operation was agreed to, and lets go of those whose was not."""
    asked = await store.sql.feature_rows(FEATURE, "asked_ones")
    if not asked:
        return
    named = {row["cancel_operation"]: UUID(str(row["id"])) for row in asked}
    for record in await store.records(COLLECTION, ids=list(named)):
        if record.state in (Status.RUNNING, Status.COMPLETED, Status.PAUSED):
            await store.apply(marking(named[record.id], record.body["actor"], record.body["reason"])(record.id))
