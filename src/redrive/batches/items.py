"""Items of batches of both sorts in one form, and read to the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE, PAGE, ItemState
from redrive.batches.remote.model import BatchItem, item_of
from redrive.errors import InvalidInput
from redrive.feature import Store, encode
from redrive.kernel.payload import CUT, JsonText
from redrive.kernel.reads import Query
from redrive.kernel.task import State, Task
from redrive.ops.csv_lines import csv_line
from redrive.ops.views import View

# What an item's state is by its task's; those that wait are pending, for whatever reason.
_STATES = {
    ItemState.PENDING: (State.QUEUED, State.DELAYED, State.PAUSED),
    ItemState.PROCESSING: (State.RUNNING,),
    ItemState.COMPLETED: (State.COMPLETED,),
    ItemState.FAILED: (State.FAILED,),
    ItemState.CANCELLED: (State.CANCELLED,),
}
_BY_TASK = {state: name for name, states in _STATES.items() for state in states}


@dataclass(slots=True, frozen=True)
class JobPart:
    """What an item has that is a job at a provider."""

    job: str | None
    progress: float | None
    poll_count: int
    last_poll_at: datetime | None
    late: bool  # what it says came after the batch was settled; not charged unless it is completed
    unknown: bool  # it has ended without the provider's word: nobody knows what became of its job
    said: str | None  # what the provider said of its job after that
    waits_for: str | None  # while it has not ended


@dataclass(slots=True, frozen=True)
class Item:
    """An item. ``n`` is its place in what a remote batch was given; its task comes when its turn has."""

    n: int | None
    state: ItemState
    task_id: str | None
    kind: str | None
    payload: Any
    result: Any
    error_code: str | None
    error_message: str | None
    failure_type: str | None
    attempt_count: int | None
    started_at: datetime | None
    ended_at: datetime | None
    remote: JobPart | None = None


@dataclass(slots=True, frozen=True)
class ItemPage:
    items: list[Item]
    next_after: str | None


def task_states(states: Sequence[str]) -> tuple[State, ...]:
    """Returns the states of tasks that items of these states are in."""
    for state in states:
        if state not in list(ItemState):
            raise InvalidInput(f"{state!r} is no state of an item", hint=f"one of: {', '.join(ItemState)}")
    return tuple(one for state in states for one in _STATES[ItemState(state)])


def item_of_task(seen: Mapping[str, Any]) -> Item:
    """Returns the item of a task, as far as the caller sees it."""
    same = ("kind", "payload", "result", "error_code", "error_message", "failure_type", "attempt_count")
    return Item(
        n=None,
        state=_BY_TASK[State(seen["state"])],
        task_id=str(seen["id"]),
        started_at=seen["last_attempt_at"],
        ended_at=seen["finished_at"] or seen["failed_at"],
        **{name: seen.get(name) for name in same},
    )


def item_of_remote(item: BatchItem) -> Item:
    """Returns the item of a remote batch in the words of all."""
    same = ("n", "state", "payload", "result", "error_code", "error_message", "failure_type", "started_at", "ended_at")
    return Item(
        task_id=None if item.task_id is None else str(item.task_id),
        kind=None,
        attempt_count=None,
        remote=JobPart(**{name: getattr(item, name) for name in _JOB}),
        **{name: getattr(item, name) for name in same},
    )


_COMMON = tuple(one.name for one in fields(Item) if one.name != "remote")
_JOB = tuple(one.name for one in fields(JobPart))


def item_document(item: Item) -> View:
    """Returns an item for HTTP and ``--json``."""
    part = item.remote
    job = None if part is None else View({name: getattr(part, name) for name in _JOB})
    common = {name: getattr(item, name) for name in _COMMON}
    return View({**{name: None if value is CUT else value for name, value in common.items()}, "remote": job})


def items_csv(items: Iterable[Item]) -> Iterator[str]:
    """Yields items as lines of CSV, after one of names; payload and result are JSON."""
    yield csv_line([*_COMMON, *_JOB])
    for item in items:
        yield csv_line(_cells(item))


def _cells(item: Item) -> Iterator[object]:
    for name in _COMMON:
        value = getattr(item, name)
        if name in ("payload", "result") and value is not None and not isinstance(value, JsonText):
            yield "" if value is CUT else json.dumps(value, ensure_ascii=False)
        else:
            yield _plain(value)
    for name in _JOB:
        yield None if item.remote is None else _plain(getattr(item.remote, name))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


async def items_of(store: Store, batch: UUID, states: Sequence[str]) -> AsyncIterator[Item]:
    """Yields the items of a batch of either sort, with whole payloads and results: tasks the latest first, jobs in the
    order in which they were given."""
    wanted = task_states(states)
    rows = await store.sql.feature_rows(FEATURE, "sort_of", str(batch))
    if rows and rows[0]["remote"]:
        async for job in _jobs(store, batch, states):
            yield job
        return
    before: UUID | None = None
    while True:
        found = await store.find(Query(wanted, join=str(batch), limit=PAGE, before=before))
        for task in found:
            yield item_of_task({name: getattr(task, name) for name in _TASK})
        if len(found) < PAGE:
            return
        before = found[-1].id


async def _jobs(store: Store, batch: UUID, states: Sequence[str]) -> AsyncIterator[Item]:
    wanted, after = (encode(list(states), "states") if states else None), 0
    while True:
        rows = await store.sql.feature_rows(FEATURE, "items_listed", str(batch), after, wanted, None, PAGE)
        found = [item_of(row) for row in rows]
        for item in found:
            yield item_of_remote(item)
        if len(found) < PAGE:
            return
        after = found[-1].n


_TASK = tuple(one.name for one in fields(Task))
