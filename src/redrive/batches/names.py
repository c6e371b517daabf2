"""The names of batches: their states, and the kinds of remote ones with their queues, keys and bounds. Nothing else is
imported here: every process has it."""

from __future__ import annotations

from enum import StrEnum

FEATURE = "batches"
DISPATCH, SETTLE, RELEASE, LATE = "BATCH_DISPATCH", "BATCH_SETTLE", "BATCH_RELEASE", "BATCH_LATE"
RECONCILE = "BATCH_RECONCILE"
DISPATCH_QUEUE, QUEUE, SETTLE_QUEUE = "batches-dispatch", "batches", "batches-settle"
TOO_LONG = "BATCH_MAX_ITEM_SECONDS"  # the code of what takes too long
CALLBACK_PATH = "api/batches/callback"
# A document that is there once an item has waited for a place: before, nobody has to look for such items.
PLACES, WAITED = "batch_places", "waited"
STEP_ATTEMPTS = 25  # none of the steps depends on anybody but the store
ITEM_ATTEMPTS = 100_000  # what bounds an item is time, and the provider: a job that runs is not given up for our errors
ITEM_KIND = "BATCH_ITEM_"
ITEM_KEY, LATE_KEY = "redrive:batch:", "redrive:batch-late:"
RESERVED_KINDS = (DISPATCH, SETTLE, RELEASE, LATE, RECONCILE, ITEM_KIND, "BATCHES_ENDED")
# Workers in a row that may die of a step; an item is bounded by BATCH_MAX_ITEM_SECONDS.
MAX_DEATHS = {**dict.fromkeys((DISPATCH, SETTLE, RELEASE, LATE, RECONCILE), STEP_ATTEMPTS), ITEM_KIND: None}


class BatchState(StrEnum):
    QUEUED = "queued"  # of remote batches: nothing of it was begun
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ItemState(StrEnum):
    """How far an item is, whether it is a task or a job at a provider."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_ITEMS = (ItemState.COMPLETED, ItemState.FAILED, ItemState.CANCELLED)
SETTLED = (BatchState.COMPLETED, BatchState.FAILED, BatchState.CANCELLED)


def item_kind(provider: str) -> str:
    """Returns the kind of items of a provider: each has its own, so that one that is down holds up no other."""
    return f"{ITEM_KIND}{provider.upper()}"
