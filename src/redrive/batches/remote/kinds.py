"""The kinds of remote batches with their queues, keys and bounds: the steps of a batch, and items of each provider."""

from __future__ import annotations

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


def item_kind(provider: str) -> str:
    """Returns the kind of items of a provider: each has its own, so that one that is down holds up no other."""
    return f"{ITEM_KIND}{provider.upper()}"
