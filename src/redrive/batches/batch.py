"""A batch as it is shown: what it was made of, how far it is, and what may go wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from redrive.batches.names import SETTLED, BatchState, ItemState
from redrive.errors import BatchUnknown as BatchUnknown
from redrive.feature import Closed, Conflict, InvalidInput, Open
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.payload import decode

B = TypeVar("B", bound=Any)
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


def check_kept(batch: UUID, pruned_at: datetime | None) -> None:
    """Refuses to act on a batch that is being removed."""
    if pruned_at is not None:
        raise BatchPruned(
            f"batch {batch} is being removed since {pruned_at:%Y-%m-%d %H:%M} UTC, and some of its items are gone",
            hint="it ended longer ago than REDRIVE_HISTORY_DAYS says: make a new batch of what is still wanted; "
            "redrive ledger adjust moves money that is still owed",
        )


def check_item_states(states: Iterable[str]) -> None:
    """Refuses a state that no item has."""
    for state in states:
        if state not in list(ItemState):
            raise InvalidInput(f"{state!r} is no state of an item", hint=f"one of: {', '.join(ItemState)}")


@dataclass(slots=True, frozen=True)
class RemotePart:
    """What a batch has whose items are jobs at a provider; money as the ledger has it."""

    provider: Annotated[str, Open()]
    account: Annotated[str | None, Open()]
    price: Annotated[int, Open()]
    round: Annotated[int, Open()]
    processing: Annotated[int, Open("Items that are with the provider.")]
    unknown: Annotated[int, Open("Items that have ended without the provider's word.")]
    uncharged: Annotated[int, Open("Items that ended here, whose jobs ran all the same: nobody has paid for them.")]
    max_in_flight: Annotated[int | None, Open("So many of its jobs run at once; null: any number.")]
    frozen: Annotated[int, Open()]
    captured: Annotated[int, Open()]
    released: Annotated[int, Open()]
    webhook_url: Annotated[str | None, Open()]
    reason: Annotated[str | None, Open()]
    dispatched_at: Annotated[datetime | None, Open()]
    settled_at: Annotated[datetime | None, Open()]
    pruned_at: Annotated[datetime | None, Open("Since when it is being removed: nobody acts on it any more.")]
    unit: Annotated[str, Open("What its amounts are called (LEDGER_UNIT).")] = ""

    def price_of(self, items: int) -> int:
        """Returns what so many items cost."""
        return self.price * items


@dataclass(slots=True, frozen=True)
class Batch:
    """A batch with the counts of its items; ``pending`` ones wait or run. Those of a large one may be a second old."""

    id: Annotated[UUID, Open()]
    name: Annotated[str | None, Closed()]
    key: Annotated[str | None, Closed()]
    meta: Annotated[Any, Closed()]
    scope: Annotated[str | None, Open()]
    state: Annotated[BatchState, Open()]
    open: Annotated[bool, Open("Items may still come.")]
    total: Annotated[int, Open()]
    pending: Annotated[int, Open()]
    completed: Annotated[int, Open()]
    failed: Annotated[int, Open()]
    cancelled: Annotated[int, Open()]
    created_at: Annotated[datetime, Open()]
    created_by: Annotated[str, Open()]
    added_at: Annotated[datetime, Open("When its maker added to it last.")]
    ended_at: Annotated[datetime | None, Open("When all had ended for the first time.")] = None
    succeeded_at: Annotated[datetime | None, Open()] = None
    cancelled_at: Annotated[datetime | None, Open()] = None
    cancelled_by: Annotated[str | None, Open()] = None
    cancel_reason: Annotated[str | None, Open()] = None
    cancel_operation: Annotated[str | None, Open()] = None
    fault: Annotated[str | None, Open("Why what follows could not be enqueued.")] = None
    remote: Annotated[RemotePart | None, Open("Null where its items are tasks.")] = None

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


_COUNTS = ("total", "completed", "failed", "cancelled")
_TEXTS = ("name", "key", "scope", "created_by", "cancelled_by", "cancel_reason", "cancel_operation", "fault")
_TIMES = ("created_at", "added_at", "ended_at", "succeeded_at", "cancelled_at")


def without_words(batch: B) -> B:
    """Returns a batch without what its maker wrote for it, which may name a person: for those who may only look."""
    return replace(batch, name=None, key=None, meta=None)


def of_row(row: Mapping[str, Any]) -> Batch:
    """Returns the batch of tasks of a row, which differs a little between stores: texts and microseconds, or values.
    Its state follows from the counts, as ``listed`` of the statements has it: an item that is retried after the end
    makes it processing again."""
    open, (total, completed, failed, cancelled) = bool(row["open"]), (row[name] for name in _COUNTS)
    pending = total - completed - failed - cancelled
    if row["cancelled_at"] is not None:
        state = BatchState.CANCELLED
    elif open or pending:
        state = BatchState.PROCESSING
    elif completed == total:
        state = BatchState.COMPLETED
    else:
        state = BatchState.FAILED if failed else BatchState.CANCELLED
    values: dict[str, Any] = {name: row[name] for name in (*_COUNTS, *_TEXTS)}
    values |= {name: to_datetime(row[name]) for name in _TIMES}
    return Batch(id=UUID(str(row["id"])), meta=decode(row["meta"]), state=state, open=open, pending=pending, **values)
