"""How items of a round end without a task of theirs: their turn never came, or their task was lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from redrive.batches.batch import FEATURE, ItemState
from redrive.batches.remote.model import Counts, RemoteBatch
from redrive.kernel.reactions import Rows

UNENDED = (ItemState.PENDING, ItemState.PROCESSING)
ITEM_LOST = "BATCH_ITEM_LOST"
ITEM_LOST_WHY = "its task was gone before it had ended, so nobody knows what became of it"


def unstarted(batch: RemoteBatch, change: dict[str, Any]) -> Rows:
    """Returns what becomes of items whose turn has not come."""
    return Rows(FEATURE, "items_unstarted", ({"batch": str(batch.id), "round": batch.round, **change},))


def lost_items(batch: RemoteBatch, lost: int) -> list[Rows]:
    """Returns what fails the items that have not ended, and whose tasks will not end them."""
    place = {"batch": str(batch.id), "round": batch.round, "code": ITEM_LOST, "message": ITEM_LOST_WHY}
    return [Rows(FEATURE, "items_lost", (place,))] if lost else []


def ended(batch: RemoteBatch, counts: Counts) -> Rows:
    """Returns what lets nothing land unless all items of the round have ended, and so many have succeeded."""
    place = {"id": str(batch.id), "round": batch.round, "completed": counts.in_round[ItemState.COMPLETED]}
    return Rows(FEATURE, "remote_round_ended", (place,))


def counted(batch: RemoteBatch) -> Rows:
    """Returns what keeps how many items ended how, so that lists need not count them: last, when all have."""
    return Rows(FEATURE, "remote_counted", ({"id": str(batch.id)},))


def without_lost(counts: Counts) -> tuple[Counts, int]:
    """Returns the counts with what has not ended as failed, and how many these are."""
    lost = sum(counts.in_round[state] for state in UNENDED)
    if not lost:
        return counts, 0
    gone = dict.fromkeys(UNENDED, 0)
    states = {**counts.states, **gone, ItemState.FAILED: counts.states[ItemState.FAILED] + lost}
    in_round = {**counts.in_round, **gone, ItemState.FAILED: counts.in_round[ItemState.FAILED] + lost}
    return replace(counts, states=states, in_round=in_round, unknown=counts.unknown + counts.begun, begun=0), lost
