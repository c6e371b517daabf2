"""A batch as it is shown: what it was made of, how far it is, and what may go wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.feature import Conflict, NotFound
from redrive.kernel.payload import decode

FEATURE = "batches"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BatchUnknown(NotFound):
    code = "BATCH_UNKNOWN"


class BatchConflict(Conflict):
    """Its key names a batch of other content, or one that is still being filled."""

    code = "BATCH_CONFLICT"


class BatchCancelled(Conflict):
    """It takes no more items."""

    code = "BATCH_CANCELLED"


class BatchState(StrEnum):
    QUEUED = "queued"  # of remote batches: nothing of it was begun
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


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

    @property
    def pending(self) -> int:
        """How many items have not ended: they wait, or run."""
        return self.total - self.completed - self.failed - self.cancelled

    @property
    def state(self) -> BatchState:
        """Follows from the counts, as ``listed`` of the statements has it: an item that is retried after the end makes
        it processing again."""
        if self.cancelled_at is not None:
            return BatchState.CANCELLED
        if self.open or self.pending:
            return BatchState.PROCESSING
        if self.completed == self.total:
            return BatchState.COMPLETED
        return BatchState.FAILED if self.failed else BatchState.CANCELLED

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


def of_row(row: Mapping[str, Any]) -> Batch:
    """Returns the batch of a row, which differs a little between stores: texts and microseconds, or values."""
    values = {name: value for name, value in row.items() if name in _NAMES}
    values["id"] = UUID(str(row["id"]))
    values["open"] = bool(row["open"])
    values["meta"] = decode(row["meta"])
    return Batch(**{**values, **{name: moment(row[name]) for name in _TIMES}})


def moment(value: datetime | int | None) -> datetime | None:
    return _EPOCH + timedelta(microseconds=value) if isinstance(value, int) else value
