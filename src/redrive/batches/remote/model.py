"""Remote batches and their items as they are read, and what may go wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.batches.batch import Batch, BatchUnknown, RemotePart, check_kept, of_row
from redrive.batches.names import ENDED_ITEMS, FEATURE, SETTLED, BatchState, ItemState
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.payload import decode
from redrive.kernel.ports.store import Store
from redrive.kernel.reactions import Rows

NO_MONEY = "INSUFFICIENT_CREDITS"


@dataclass(slots=True, frozen=True)
class RemoteBatch:
    """A remote batch as its row is. ``frozen``, ``captured`` and ``released`` are money, as the ledger has it."""

    id: UUID
    name: str | None
    key: str | None
    digest: str | None
    meta: Any
    scope: str | None
    provider: str
    account: str | None
    price: int
    items: int
    webhook_url: str | None
    state: BatchState
    reason: str | None
    round: int
    in_round: int
    join_id: UUID | None
    frozen: int
    captured: int
    released: int
    created_at: datetime
    created_by: str
    dispatched_at: datetime | None
    settled_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None
    version: int
    max_in_flight: int | None = None  # of its jobs so many may run at once
    ended_at: datetime | None = None
    pruned_at: datetime | None = None  # since when it is being removed: nobody acts on it any more
    step_task: UUID | None = None  # what takes it further: its dispatch, or its settlement when its items have ended

    @property
    def reference(self) -> str:
        """What the ledger calls it."""
        return f"batch:{self.id}"

    @property
    def charge(self) -> str:
        """Names this round of it: the key of its money."""
        return f"{self.id}:{self.round}"

    def check_kept(self) -> None:
        """Refuses to act on a batch that is being removed."""
        check_kept(self.id, self.pruned_at)

    @property
    def settled(self) -> bool:
        return self.state in SETTLED

    def price_of(self, items: int) -> int:
        """Returns what so many items cost."""
        return self.price * items

    @property
    def label(self) -> str:
        """What people call it."""
        return self.name or self.key or str(self.id)

    def moved(self, **changes: Any) -> Rows:
        """Returns the row as it is to be from now on: it lands only if nobody has changed it since this was read.
        ``dispatched``, ``settled``, ``ended`` (without a settlement) and ``cancelled`` are times: "now", or "no" for
        none."""
        kept = ("state", "reason", "round", "in_round", "frozen", "captured", "released", "cancelled_by", "version")
        row = {name: getattr(self, name) for name in kept}
        row |= {"id": str(self.id)}
        row |= {name: None if (own := getattr(self, name)) is None else str(own) for name in ("join_id", "step_task")}
        return Rows(FEATURE, "remote_moved", ({**row, **changes},))


_NAMES = tuple(one.name for one in fields(RemoteBatch))
_TIMES = ("created_at", "dispatched_at", "settled_at", "cancelled_at", "ended_at", "pruned_at")


def remote_of(row: Mapping[str, Any]) -> RemoteBatch:
    """Returns the remote batch of a row."""
    values = {name: row[name] for name in _NAMES}
    values |= {name: to_datetime(row[name]) for name in _TIMES}
    values["id"] = UUID(str(row["id"]))
    for name in ("join_id", "step_task"):
        values[name] = None if row[name] is None else UUID(str(row[name]))
    values["meta"] = decode(row["meta"])
    values["state"] = BatchState(row["state"])
    # One that a worker of the version before has settled has no other time of its end.
    values["ended_at"] = (values["settled_at"] or values["ended_at"]) if values["state"] in SETTLED else None
    return RemoteBatch(**values)


def batch_of(row: Mapping[str, Any]) -> Batch:
    """Returns what all batches have in common, of a row with the counts of its items."""
    own = remote_of(row)
    part = RemotePart(
        processing=row["n_processing"],
        unknown=row["n_unknown"],
        uncharged=row["n_uncharged"],
        **{name: getattr(own, name) for name in _PART},
    )
    completed, failed, cancelled = (row[f"n_{state}"] for state in ENDED_ITEMS)
    return Batch(
        **{name: getattr(own, name) for name in _SHARED},
        state=own.state,
        open=False,
        total=own.items,
        pending=own.items - completed - failed - cancelled,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        added_at=own.created_at,
        ended_at=own.ended_at,
        succeeded_at=own.settled_at if completed == own.items else None,
        cancel_reason=None if own.cancelled_at is None else own.reason,
        remote=part,
    )


_PART = tuple(one.name for one in fields(RemotePart) if one.name not in ("processing", "unknown", "uncharged", "unit"))
_SHARED = (
    "id",
    "name",
    "key",
    "meta",
    "scope",
    "created_at",
    "created_by",
    "cancelled_at",
    "cancelled_by",
)


@dataclass(slots=True, frozen=True)
class BatchItem:
    """An item of a remote batch. ``n`` is its place in what the batch was given, from 1."""

    n: int
    state: ItemState
    payload: Any
    task_id: UUID | None
    job: str | None
    progress: float | None
    poll_count: int
    last_poll_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    result: Any
    error_code: str | None
    error_message: str | None
    failure_type: str | None
    late: bool  # what it says came after the batch was settled; not charged unless it is completed
    unknown: bool = False  # it has ended without the provider's word: nobody knows what became of its job
    said: str | None = None  # what the provider said of its job after that

    @property
    def waits_for(self) -> str | None:
        """What it waits for, in words; None when it has ended."""
        if self.state is ItemState.PROCESSING:
            return self.error_message or "its job at the provider"
        if self.state is not ItemState.PENDING:
            return None
        return "its turn" if self.task_id is None else self.error_message or "to be started"


def item_of(row: Mapping[str, Any]) -> BatchItem:
    """Returns the item of a row."""
    values = {
        **row,
        "state": ItemState(row["state"]),
        "payload": decode(row["payload"]),
        "result": decode(row["result"]),
        "late": bool(row["late"]),
        "unknown": bool(row["unknown"]),
    }
    values |= {name: to_datetime(row[name]) for name in ("last_poll_at", "started_at", "ended_at")}
    values["task_id"] = None if row["task_id"] is None else UUID(str(row["task_id"]))
    return BatchItem(**values)


@dataclass(slots=True, frozen=True)
class Counts:
    """How many items of a batch are in which state; ``in_round``: those that its last charge is for."""

    states: Mapping[ItemState, int]
    in_round: Mapping[ItemState, int]
    unreleased: int  # cancelled ones whose turn never came, and whose price has not gone back
    unknown: int = 0  # those that ended without the provider's word
    begun: int = 0  # those of the round that may be at the provider, and have not ended

    @property
    def ended(self) -> int:
        return sum(self.states.get(state, 0) for state in ENDED_ITEMS)


def no_items() -> dict[ItemState, int]:
    """Returns counts of nothing: every state is there."""
    return dict.fromkeys(ItemState, 0)


async def find_remote(store: Store, batch: object) -> RemoteBatch:
    """Returns a remote batch by its id."""
    rows = await store.sql.feature_rows(FEATURE, "remote_by_id", str(batch))
    if not rows:
        raise BatchUnknown(f"there is no remote batch {batch}", hint="redrive batch list --remote names the latest")
    return remote_of(rows[0])


async def find_batch(store: Store, batch: UUID) -> Batch:
    """Returns a batch of tasks, with its counts as they are now."""
    rows = await store.sql.feature_rows(FEATURE, "by_id", str(batch))
    if not rows:
        raise BatchUnknown(f"there is no batch {batch}", hint="redrive batch list names the latest")
    return of_row(rows[0])


async def find_either(store: Store, batch: UUID) -> Batch:
    """Returns a batch of either sort, with its counts as they are now."""
    found = await remote_ones(store, [batch])
    return found[0] if found else await find_batch(store, batch)


async def remote_ones(store: Store, batches: Iterable[object]) -> list[Batch]:
    """Returns remote batches with their counts, the latest first."""
    ids = json.dumps([str(one) for one in batches])
    return [batch_of(row) for row in await store.sql.feature_rows(FEATURE, "remote_shown", ids)]


async def count_items(store: Store, batch: RemoteBatch) -> Counts:
    """Returns how many items of a batch are in which state."""
    rows = await store.sql.feature_rows(FEATURE, "remote_counts", str(batch.id), batch.round)
    states = no_items() | {ItemState(row["state"]): row["n"] for row in rows}
    in_round = no_items() | {ItemState(row["state"]): row["in_round"] for row in rows}
    sums = (sum(row[name] for row in rows) for name in ("unreleased", "unknown", "begun"))
    return Counts(states, in_round, *sums)


@dataclass(slots=True, frozen=True)
class ToRetry:
    """What ``retry-failed`` does with the failed items of a batch. Nobody pays twice for one job, so those are left out
    whose jobs succeeded, as the provider said afterwards, or were asked to end there and may still succeed."""

    failed: int = 0
    ran: int = 0
    stopped: int = 0
    unsure: int = 0  # their ends are not known: their jobs are looked at, or their starts repeated with the same key

    @property
    def matched(self) -> int:
        """How many go into a new round."""
        return self.failed - self.skipped

    @property
    def skipped(self) -> int:
        return self.ran + self.stopped

    def notes(self, batch: object) -> list[str]:
        """Returns what is not simply started again, in words, each with the command to go on with."""
        found = []
        if self.ran:
            jobs = "its job" if self.ran == 1 else "their jobs"
            found.append(
                f"{_items(self.ran)} not started again: the provider said that {jobs} succeeded; "
                f"redrive batch charge {batch} --reason '…' charges for {_them(self.ran)}"
            )
        if self.stopped:
            jobs = "its job" if self.stopped == 1 else "their jobs"
            found.append(
                f"{_items(self.stopped)} not started again yet: the provider was asked to end {jobs}; "
                f"redrive batch reconcile {batch} asks what became of {_them(self.stopped)}"
            )
        if self.unsure:
            found.append(
                f"{self.unsure} item{'' if self.unsure == 1 else 's'} of these ended without the provider's word: no "
                f"second job is started, the first one is looked at, or asked for by the same key"
            )
        return found


NOTHING_TO_RETRY = ToRetry()


def _items(number: int) -> str:
    return "1 item is" if number == 1 else f"{number} items are"


def _them(number: int) -> str:
    return "it" if number == 1 else "them"


async def items_to_retry(store: Store, batch: UUID) -> ToRetry:
    """Returns what a retry of a batch's failed items is about."""
    [row] = await store.sql.feature_rows(FEATURE, "items_to_retry", str(batch))
    return ToRetry(row["failed"], row["ran"], row["stopped"], row["unsure"])
