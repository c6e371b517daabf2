"""Items of batches of both sorts in one form, read to the end; and the results of a batch as a file: its items as CSV
or JSON, the same on the command line, over HTTP, in the console. The file is written while it is read: however many
there are, no more than a piece is in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from redrive.batches.batch import PAGE, check_item_states
from redrive.batches.names import FEATURE, ItemState
from redrive.batches.remote.model import BatchItem, item_of
from redrive.errors import InvalidInput
from redrive.feature import Open, Store, encode
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

    job: Annotated[str | None, Open()]
    progress: Annotated[float | None, Open()]
    poll_count: Annotated[int, Open()]
    last_poll_at: Annotated[datetime | None, Open()]
    late: Annotated[bool, Open("What it says came after the batch was settled; not charged unless it is completed.")]
    unknown: Annotated[bool, Open("It has ended without the provider's word: nobody knows what became of its job.")]
    said: Annotated[str | None, Open("What the provider said of its job after that.")]
    waits_for: Annotated[str | None, Open("What it waits for; null when it has ended.")]


@dataclass(slots=True, frozen=True)
class Item:
    """An item: a task, or a job at a provider, which has a task when its turn has come. ``n`` is its place in what a
    remote batch was given."""

    n: Annotated[int | None, Open()]
    state: Annotated[ItemState, Open()]
    task_id: Annotated[str | None, Open()]
    kind: Annotated[str | None, Open()]
    payload: Annotated[Any, Open()]
    result: Annotated[Any, Open()]
    error_code: Annotated[str | None, Open()]
    error_message: Annotated[str | None, Open()]
    failure_type: Annotated[str | None, Open()]
    attempt_count: Annotated[int | None, Open()]
    started_at: Annotated[datetime | None, Open()]
    ended_at: Annotated[datetime | None, Open()]
    remote: Annotated[JobPart | None, Open()] = None


@dataclass(slots=True, frozen=True)
class ItemPage:
    items: Annotated[list[Item], Open()]
    next_after: Annotated[str | None, Open()]


def task_states(states: Sequence[str]) -> tuple[State, ...]:
    """Returns the states of tasks that items of these states are in."""
    check_item_states(states)
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
    if await store.sql.feature_rows(FEATURE, "remote_by_id", str(batch)):
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

Read = Callable[..., Awaitable[ItemPage]]
FORMS = {"csv": "text/csv; charset=utf-8", "json": "application/json"}


@dataclass(slots=True, frozen=True)
class WantedItems:
    """Which items of a batch: of these states, of a kind, failed by a type, behind one, so many at most."""

    states: Sequence[str] = ()
    kind: str | None = None
    failure_type: str | None = None
    after: str | None = None
    most: int = sys.maxsize


def check_form(form: str) -> str:
    """Returns a format that there is."""
    if form not in FORMS:
        raise InvalidInput(f"there is no format {form[:20]!r}", hint=" or ".join(FORMS))
    return form


async def results(read: Read, batch: str, form: str, wanted: WantedItems | None = None) -> AsyncIterator[str]:
    """Yields the text of the file; ``read`` is ``BatchService.items``."""
    written = 0
    async for items in _pieces(read, batch, wanted or WantedItems()):
        yield _csv(items, written) if form == "csv" else _json(items, written)
        written += len(items)
    if form == "json":
        yield "\n]\n"


async def _pieces(read: Read, batch: str, wanted: WantedItems) -> AsyncIterator[list[Item]]:
    """Yields items, at least once, and then without any where there are none."""
    after, left, more = wanted.after, wanted.most, True
    while more:
        found = await read(
            batch,
            states=wanted.states,
            kind=wanted.kind,
            failure_type=wanted.failure_type,
            limit=min(PAGE, left),
            after=after,
        )
        after, left = found.next_after, left - len(found.items)
        more = after is not None and left > 0
        yield found.items


def _csv(items: list[Item], written: int) -> str:
    lines = items_csv(items)
    if written:
        next(lines)  # their names are there already
    return "".join(lines)


def _json(items: list[Item], written: int) -> str:
    documents = (json.dumps(item_document(one), ensure_ascii=False, default=str) for one in items)
    text = ",".join(f"\n{one}" for one in documents)
    return "[" + text if not written else "," + text if text else ""
