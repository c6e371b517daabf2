"""What people see of batches in every face, besides a batch and its items: a page of them, what a batch waits for, what
its items are failed by, and what was begun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from redrive.batches.batch import Batch
from redrive.feature import Closed, Open, Role, view_of
from redrive.kernel.records import Record
from redrive.ops.operator.declared import document
from redrive.ops.views import Sight, View
from redrive.ops.why import Reason


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
class BatchPage:
    batches: Annotated[list[Batch], Open()]
    next_before: Annotated[UUID | None, Open()]


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
