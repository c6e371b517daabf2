"""The names of the kinds and queues of remote batches."""

from __future__ import annotations

FEATURE = "batches"
DISPATCH, SETTLE, RELEASE = "BATCH_DISPATCH", "BATCH_SETTLE", "BATCH_RELEASE"
DISPATCH_QUEUE, QUEUE, SETTLE_QUEUE = "batches-dispatch", "batches", "batches-settle"
STEP_ATTEMPTS = 25  # none of the steps depends on anybody but the store
ITEM_ATTEMPTS = 5


def item_kind(provider: str) -> str:
    """Returns the kind of items of a provider: each has its own, so that one that is down holds up no other."""
    return f"BATCH_ITEM_{provider.upper()}"
