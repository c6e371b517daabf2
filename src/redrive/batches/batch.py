"""A batch as it is shown: what it was made of, how far it is, and what may go wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.errors import BatchUnknown as BatchUnknown
from redrive.feature import Conflict, InvalidInput
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.payload import decode

FEATURE = "batches"
PAGE = 500  # rows that are read at once
STRETCHES = 30  # in which the time of a batch is told
BATCH = "a batch"  # what an id should name that is none


class BatchConflict(Conflict):
    """Its key names a batch of other content, or one that is still being filled."""

    code = "BATCH_CONFLICT"


class BatchCancelled(Conflict):
    """It takes no more items."""

    code = "BATCH_CANCELLED"


class BatchPruned(Conflict):
    """It is being removed, in pieces: what is left of its items says nothing about it any more."""

    code = "BATCH_PRUNED"


class BadItem(InvalidInput):
    """One of the items that a batch was to be made of cannot be used; nothing was created."""

    code = "BATCH_ITEM_INVALID"


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


def check_kept(batch: UUID, pruned_at: datetime | None) -> None:
    """Refuses to act on a batch that is being removed."""
    if pruned_at is not None:
        raise BatchPruned(
            f"batch {batch} is being removed since {pruned_at:%Y-%m-%d %H:%M} UTC, and some of its items are gone",
            hint="it ended longer ago than REDRIVE_HISTORY_DAYS says: make a new batch of what is still wanted; "
            "redrive ledger adjust moves money that is still owed",
        )


@dataclass(slots=True, frozen=True)
class RemotePart:
    """What a batch of jobs at a provider has besides. ``frozen``, ``captured`` and ``released`` are money, as the
    ledger has it."""

    provider: str
    account: str | None
    price: int
    state: BatchState
    round: int
    processing: int  # items that are with the provider
    unknown: int  # items that have ended without the provider's word: nobody knows what became of their jobs
    uncharged: int  # items that ended here, whose jobs ran all the same, and that nobody has paid for
    max_in_flight: int | None  # so many of its jobs may run at once
    frozen: int
    captured: int
    released: int
    webhook_url: str | None
    reason: str | None
    dispatched_at: datetime | None
    settled_at: datetime | None
    pruned_at: datetime | None  # since when it is being removed, as it ended longer ago than batches are kept
    unit: str = ""  # what its amounts are called (LEDGER_UNIT); empty where nobody looked that up

    def price_of(self, items: int) -> int:
        """Returns what so many items cost."""
        return self.price * items


@dataclass(slots=True, frozen=True)
class Batch:
    """A batch with the counts of its items; those of a large one may be a second old."""

    id: UUID
    name: str | None
    key: str | None
    meta: Any
    scope: str | None
    created_at: datetime
    created_by: str
    open: bool  # items may still come
    total: int
    completed: int
    failed: int
    cancelled: int
    added_at: datetime
    digest: str | None = None
    ended_at: datetime | None = None  # when all had ended for the first time
    succeeded_at: datetime | None = None
    cancelled_at: datetime | None = None
    cancelled_by: str | None = None
    cancel_reason: str | None = None
    cancel_operation: str | None = None
    fault: str | None = None  # why what follows could not be enqueued
    remote: RemotePart | None = None  # where its items are jobs at a provider

    @property
    def pending(self) -> int:
        """How many items have not ended: they wait, or run."""
        return self.total - self.completed - self.failed - self.cancelled

    @property
    def state(self) -> BatchState:
        """Follows from the counts, as ``listed`` of the statements has it: an item that is retried after the end makes
        it processing again. Of a remote batch it is what its row says: money goes with it."""
        if self.remote is not None:
            return self.remote.state
        if self.cancelled_at is not None:
            return BatchState.CANCELLED
        if self.open or self.pending:
            return BatchState.PROCESSING
        if self.completed == self.total:
            return BatchState.COMPLETED
        return BatchState.FAILED if self.failed else BatchState.CANCELLED

    def check_kept(self) -> None:
        """Refuses to act on a batch that is being removed."""
        if self.remote is not None:
            check_kept(self.id, self.remote.pruned_at)

    @property
    def ended(self) -> bool:
        """Whether nothing more happens with it by itself."""
        return self.state in SETTLED if self.remote is not None else not (self.open or self.pending)

    @property
    def asked(self) -> bool:
        """Whether it will be cancelled when a second operator agrees."""
        return self.cancel_operation is not None and self.cancelled_at is None

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.key or str(self.id)

    @property
    def progress(self) -> float:
        """How much of it has ended, from 0 to 1."""
        return (self.total - self.pending) / self.total if self.total else float(not self.open)


_NAMES = frozenset(one.name for one in fields(Batch))
_TIMES = ("created_at", "added_at", "ended_at", "succeeded_at", "cancelled_at")


def without_words(batch: Batch) -> Batch:
    """Returns a batch without what its maker wrote for it, which may name a person: for those who may only look."""
    return replace(batch, name=None, key=None, meta=None)


def of_row(row: Mapping[str, Any]) -> Batch:
    """Returns the batch of a row, which differs a little between stores: texts and microseconds, or values."""
    values = {name: value for name, value in row.items() if name in _NAMES}
    values["id"] = UUID(str(row["id"]))
    values["open"] = bool(row["open"])
    values["meta"] = decode(row["meta"])
    return Batch(**{**values, **{name: to_datetime(row[name]) for name in _TIMES}})
