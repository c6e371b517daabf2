"""A batch as every face shows it: what it was made of, how far it is, what it waits for, what its items are failed by,
what was begun; and what may go wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

from redrive.batches.names import SETTLED, BatchState, ItemState
from redrive.errors import BatchUnknown as BatchUnknown
from redrive.feature import Closed, Conflict, InvalidInput, Open, Role, view_of
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.payload import decode
from redrive.kernel.records import Record
from redrive.ops.operator.declared import document
from redrive.ops.views import Sight, View
from redrive.ops.why import Reason

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

    id: Annotated[UUID, Open(column="id")]
    name: Annotated[str | None, Closed(column="name", cell=_name)]
    key: Annotated[str | None, Closed()]
    meta: Annotated[Any, Closed()]
    scope: Annotated[str | None, Open()]
    state: Annotated[BatchState, Open(column="state", cell=_state)]
    open: Annotated[bool, Open("Items may still come.")]
    total: Annotated[int, Open(column="of")]
    pending: Annotated[int, Open(column="ended", cell=_ended, number=True)]
    completed: Annotated[int, Open()]
    failed: Annotated[int, Open(column="failed")]
    cancelled: Annotated[int, Open()]
    created_at: Annotated[datetime, Open(column="age")]
    created_by: Annotated[str, Open()]
    added_at: Annotated[datetime, Open("When its maker added to it last.")]
    ended_at: Annotated[datetime | None, Open("When all had ended for the first time.")] = None
    succeeded_at: Annotated[datetime | None, Open()] = None
    cancelled_at: Annotated[datetime | None, Open()] = None
    cancelled_by: Annotated[str | None, Open()] = None
    cancel_reason: Annotated[str | None, Open()] = None
    cancel_operation: Annotated[str | None, Open()] = None
    fault: Annotated[str | None, Open("Why what follows could not be enqueued.")] = None
    remote: Annotated[
        RemotePart | None, Open("Null where its items are tasks.", column="at a provider", cell=_money)
    ] = None

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


def _name(batch: Batch, _: datetime) -> str:
    return (batch.name or batch.key or "")[:40]


def _state(batch: Batch, _: datetime) -> str:
    """Returns its state, in a table. Of jobs one that succeeded is enough to complete it; of tasks all have to."""
    if batch.open and not batch.cancelled_at:
        return f"{batch.state} (open)"
    partly = batch.remote is not None and batch.state is BatchState.COMPLETED and batch.completed < batch.total
    return f"{batch.state} (partly)" if partly else batch.state.value


def _ended(batch: Batch, _: datetime) -> str:
    return str(batch.total - batch.pending)


def _money(batch: Batch, _: datetime) -> str:
    part = batch.remote
    return "" if part is None else f"{part.provider}: {part.frozen} frozen, {part.captured} captured"


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


@dataclass(slots=True, frozen=True)
class WaitView:
    """What keeps a batch from going on, and the command to run, if there is one."""

    code: Annotated[str, Open()]
    text: Annotated[str, Open()]
    fix: Annotated[str | None, Open()]


@dataclass(slots=True, frozen=True)
class ShownBatch(Batch):
    """A batch, and what it waits for."""

    waits_for: Annotated[list[WaitView], Open("What it waits for, and each of its items that has not ended.")] = ()  # type: ignore[assignment]


@dataclass(slots=True, frozen=True)
class FailedCause:
    """A cause of failures of a batch's items."""

    fingerprint: Annotated[str, Open()]
    failed: Annotated[int, Open()]
    code: Annotated[str, Open()]
    failure_type: Annotated[str, Open()]
    reason: Annotated[str, Open()]
    message: Annotated[str, Closed()]


@dataclass(slots=True, frozen=True)
class Trend:
    """When the items failed that are failed now: how many by each type in each of thirty equal stretches of time."""

    since: Annotated[datetime, Open()]
    step_seconds: Annotated[float, Open()]
    by_type: Annotated[Mapping[str, list[int]], Open()]


@dataclass(slots=True, frozen=True)
class Failures:
    """The items of a batch that are failed now, by type and by cause; of a great many, the latest ten thousand."""

    by_type: Annotated[dict[str, int], Open()]
    by_code: Annotated[dict[str, int], Open()]
    causes: Annotated[list[FailedCause], Open()]
    trend: Annotated[Trend | None, Open("Null where nothing is failed.")] = None


@dataclass(slots=True, frozen=True)
class Acted:
    """What was begun, or would be (``dry_run``): of a batch of tasks an operation; a remote one has changed itself.
    Either may wait for an approval."""

    batch: Annotated[Batch, Open()]
    matched: Annotated[int, Open("Items that it is about.")]
    told: Annotated[str, Open("What came of it, in words.")] = ""
    operation: Annotated[Any, Open("Of a batch of tasks; as under /api/operations.")] = None
    approval: Annotated[Record | None, Open()] = None
    needs_approval: Annotated[str | None, Open("Why a second operator has to agree.")] = None
    charge: Annotated[int | None, Open("What is frozen anew for the items, at a provider.")] = None
    skipped: Annotated[int, Open("Failed items that are not started again: their jobs ran all the same, or may.")] = 0
    notes: Annotated[
        Sequence[str], Open("Why some are skipped or only looked at, each with the command for them.")
    ] = ()
    dry_run: Annotated[bool, Open()] = False

    @property
    def unit(self) -> str:
        """What the charge is counted in."""
        return "" if self.batch.remote is None else self.batch.remote.unit

    @property
    def page(self) -> str:
        """The page of the console that shows what was begun."""
        return f"/batches/{self.batch.id}" if self.operation is None else f"/operations/{self.operation.id}"


@dataclass(slots=True, frozen=True)
class Reconciling:
    """The task that asks providers: what came of it is its result, under ``/api/tasks/ID``."""

    task: Annotated[UUID | None, Open("Null where it was accepted.")]
    items: Annotated[int, Open("Items that it asks about, or that were accepted, up to 10,000.")]

    @property
    def told(self) -> str:
        number = f"{self.items:,} item{'' if self.items == 1 else 's'}"
        if self.task is not None:
            return f"a worker asks the provider about {number}"
        return f"{number} stay{'s' if self.items == 1 else ''} unknown, as accepted"


def shown_batch(batch: Batch, reasons: Iterable[Reason]) -> ShownBatch:
    """Returns a batch with what it waits for. None of it quotes a task."""
    return view_of(ShownBatch, batch, waits_for=[view_of(WaitView, one) for one in reasons])


def plain_document(found: Any) -> View:
    """Returns the document of a view for ``--json``: what its reader may not see is not in the view any more."""
    made: View = document(found, Sight(Role.OPERATOR))
    return made


def items_are(number: int) -> str:
    """Returns the beginning of a sentence about so many items."""
    return "1 item is" if number == 1 else f"{number} items are"


def new_charge(charge: int | None, unit: str) -> str:
    """Returns the part of a sentence that says what items cost that are started again; nothing where they cost
    nothing."""
    return f", as a new charge of {charge} {unit}" if charge else ""
