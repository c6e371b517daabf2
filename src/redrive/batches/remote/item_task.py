"""The task of an item: its place in its batch, what its handler leaves in it, and what lands with its moves.

A batch begins with as many tasks as may be started at once, and each is the first of a chain. When the start of the
item at place ``i`` has landed, or it has ended before that, its settlement brings the one at ``i + chains``: so never
more than that wait to be started, other batches come in between, and of 100,000 items only those that run are tasks.
One whose start fails again and again steps out of its chain, and brings the next as well. Pure: all of it is in the
task's facts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from typing import Any
from uuid import UUID

from redrive.batches.names import FEATURE, ITEM_ATTEMPTS, ITEM_KEY, QUEUE, TOO_LONG, BatchState, ItemState
from redrive.errors import ErrorCode
from redrive.ids import new_id
from redrive.kernel.feature import Belongs
from redrive.kernel.machine import Event, Transition
from redrive.kernel.payload import decode
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.kernel.retry_guard import RetryGuard, Withheld
from redrive.kernel.task import NewTask, State

BATCH_CANCELLED = "its batch was cancelled"
BY_PROVIDER = "the provider cancelled the job"
BATCH_SETTLED = "its batch is settled: its failed items are started again with redrive batch retry-failed"
MOST_MESSAGE = 2_000
# The fields of ItemTask, as they are stored: "lanes" are its chains.
FACTS = ("batch", "round", "ordinal", "total", "lanes", "kind")


@dataclass(slots=True, frozen=True)
class ItemMemo:
    """How far an item is with its provider. ``new``, ``polled``, ``heard`` and ``stepped`` are about the call that was
    just made."""

    job: str | None = None  # the provider's id, once it was started
    new: bool = False  # it was started now: the next item of its chain may come
    polls: int | None = None  # that have told something about the job
    polled: bool = False  # it was looked at now
    heard: bool = False  # that look followed a call of the provider
    progress: float | None = None
    asked: bool = False  # the provider was asked to end it
    tries: int = 0  # starts that failed while the provider was there for others
    since: float | None = None  # when the first of its starts, or of its last looks, failed, by the store's clock
    code: str | None = None  # what the provider called the last one, and what it counts as
    type: str | None = None
    stepped: bool = False  # it steps out of its chain now, which goes on without it
    flight: bool = False  # it waits for a place: as many jobs run as may
    why: str | None = None  # what it waits for, in words
    unsure: bool = False  # a start may have reached the provider, though no job came back
    unknown: bool = False  # it ends without the provider's word

    @classmethod
    def of(cls, state: Mapping[str, Any] | None) -> ItemMemo:
        """Returns what was left; of nothing, that nothing was done. What another version has left besides is passed
        over."""
        return cls(**{name: value for name, value in (state or {}).items() if name in _USUAL})

    def state(self) -> dict[str, Any]:
        """Returns it as JSON, without what goes without saying."""
        return {name: value for name, usual in _USUAL.items() if (value := getattr(self, name)) != usual}


_USUAL = {one.name: one.default for one in fields(ItemMemo)}


@dataclass(slots=True, frozen=True, kw_only=True)
class ItemRow:
    """An item's row, as far as its handler needs it."""

    id: str = ""
    batch: str = ""
    n: int = 0
    round: int = 1
    job: str | None = None
    pending: bool = False
    polls: int = 0
    progress: float | None = None
    payload: Any = None
    erased: bool = False  # it is not started, and has no payload any more
    age: float = 0.0  # seconds since its start, or since its turn came
    wanted: bool = True  # nobody has cancelled its batch
    settled: bool = False
    shared_with: int | None = None  # the item whose job it is: a provider gave the same id to both
    called: bool = False  # its provider has said that it has ended, and nobody has looked since
    now: float = 0.0  # by the store's clock
    in_flight: bool = False  # it has a place
    start_key: str | None = None  # of a start that may have reached the provider
    bounded: bool = False  # its batch says how many of its jobs may run at once
    in_chain: bool = False  # of a task of the version before, nobody knows its chain
    may_step: bool = False  # no other item has stepped out of its chain either

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> ItemRow:
        in_chain = bool(row["lanes"]) and not row["stepped"]
        same = ("n", "round", "job", "progress", "shared_with", "start_key")
        return cls(
            **{name: row[name] for name in same},
            id=f"{row['batch']}-{row['n']}",
            batch=str(row["batch"]),
            pending=row["state"] == ItemState.PENDING,
            polls=row["poll_count"],
            payload=decode(row["payload"]),
            erased=row["job"] is None and row["payload"] is None,
            age=row["age"] or 0.0,
            wanted=not row["cancelled"],
            settled=row["batch_state"] != BatchState.PROCESSING,
            called=row["called"] == 1,
            now=float(row["now"]),
            in_flight=bool(row["in_flight"]),
            bounded=row["max_in_flight"] is not None,
            in_chain=in_chain,
            may_step=in_chain and all((n - row["ordinal"]) % row["lanes"] for n in json.loads(row["aside"] or "[]")),
        )

    def key(self, retries: int) -> str:
        """Returns the key that the provider knows this start by: a retry after a crash has the same one, a new charge
        and a retry by an operator another, unless the end of the job before is not known."""
        return self.start_key or f"{self.id}:{self.round}" + (f":r{retries}" if retries else "")


@dataclass(slots=True, frozen=True)
class ItemTask:
    """Where a task stands among the items of its batch: what its facts say."""

    batch: str
    round: int
    ordinal: int
    total: int
    chains: int
    kind: str

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ItemTask:
        return cls(*(facts[name] for name in FACTS))

    @property
    def place(self) -> dict[str, Any]:
        """Where its row is."""
        return {"batch": self.batch, "round": self.round, "ordinal": self.ordinal}

    def next(self) -> ItemTask | None:
        """Returns the place that follows in this chain."""
        at = self.ordinal + self.chains
        return replace(self, ordinal=at) if at <= self.total else None

    def task(self, join: UUID | None, scope: str | None) -> NewTask:
        """Returns the task of this item. By its key it is enqueued once, however often it is brought."""
        return NewTask(
            new_id(),
            self.kind,
            QUEUE,
            json.dumps(self.place),
            max_attempts=ITEM_ATTEMPTS,
            scope=scope,
            idempotency_key=f"{ITEM_KEY}{self.batch}:{self.round}:{self.ordinal}",
            feature=FEATURE,
            facts=json.dumps(dict(zip(FACTS, astuple(self), strict=True))),
            join=join,
            own=True,
        )


def task_rows(items: list[tuple[ItemTask, NewTask]]) -> Rows:
    """Returns the rows that say which tasks items have from now on."""
    return Rows(FEATURE, "items_brought", tuple({**item.place, "task": str(task.id)} for item, task in items))


def react(transition: Transition, landed: Landed) -> Effects | None:
    """Returns what lands with a move of an item's task: its row, and the next item of its chain."""
    if "ordinal" not in landed.facts:
        return None
    item = ItemTask.of(landed.facts)
    if landed.state is State.CANCELLED and transition.reason == BATCH_SETTLED:
        return Effects(rows=[Rows(FEATURE, "items_left", (item.place,))])
    memo = ItemMemo.of(json.loads(transition.memo) if transition.event in _SAYS and transition.memo else None)
    change = _change(transition, landed, memo)
    if change is None:
        return None
    rows = [Rows(FEATURE, "items_moved", ({**item.place, **change},))]
    following = item.next() if _goes_on(transition, landed, memo) else None
    if following is None:
        return Effects(rows=rows)
    task = following.task(landed.join, landed.scope)
    return Effects(tasks=[task], rows=[*rows, task_rows([(following, task)])])


def belongs(facts: Mapping[str, Any]) -> Belongs | None:
    """Returns the remote batch that a task is an item of."""
    return Belongs(f"batch {facts['batch']}", f"/batches/{facts['batch']}") if "ordinal" in facts else None


def _goes_on(transition: Transition, landed: Landed, memo: ItemMemo) -> bool:
    """True when the next item's turn has come; once more than that does no harm. Not when the batch was cancelled, and
    not by a failed task that is put away: it has brought the next one already."""
    if landed.state in (State.COMPLETED, State.FAILED):
        return True
    if landed.state is State.CANCELLED:
        return landed.was is not State.FAILED and transition.reason != BATCH_CANCELLED
    return memo.new or memo.stepped


def _change(transition: Transition, landed: Landed, memo: ItemMemo) -> dict[str, Any] | None:
    """Returns what changes in the item's row, None where nothing does."""
    if landed.state is State.COMPLETED:
        return {
            "state": ItemState.COMPLETED,
            "ended": True,
            "last": True,
            "progress": 100.0,
            "result": transition.result,
        }
    if landed.state is State.CANCELLED and landed.was is State.FAILED:
        return None
    if landed.state is State.CANCELLED:
        known = transition.reason in (BY_PROVIDER, BATCH_CANCELLED)
        said = {} if known else _wordless(landed, memo.unsure or landed.attempt_count > 1)
        return {"state": ItemState.CANCELLED, "ended": True, "job": memo.job, **said}
    if landed.state is State.FAILED:
        said = {"unknown": memo.unknown} if _by_handler(transition) else _wordless(landed, landed.attempt_count > 0)
        own = {"replays": landed.replay_count, **said}
        return {"state": ItemState.FAILED, "ended": True, **own, **_error(transition)}
    if transition.event is Event.REDRIVE:
        return {"state": ItemState.PENDING, "anew": True}
    if transition.event is not Event.SNOOZE:
        return None
    if memo.job is None:  # it could not be started yet
        waits = {"unsure": memo.unsure, "held": memo.flight, "stepped": memo.stepped, "message": memo.why}
        return {"state": ItemState.PENDING, **waits} if memo.why or memo.unsure else None
    named = {name: getattr(memo, name) for name in ("job", "polls", "polled", "heard", "progress")}
    return {"state": ItemState.PROCESSING, **named, "message": memo.why}


_SAYS = (Event.SNOOZE, Event.FAIL)


def _by_handler(transition: Transition) -> bool:
    """Returns whether the handler of items has said why it failed, and so whether the provider's word is known."""
    cause = transition.failure
    return cause is not None and cause.reason == "handler_failed" and str(cause.code) != ErrorCode.OUTCOME_REFUSED


def _wordless(landed: Landed, tried: bool) -> dict[str, Any]:
    """Returns that an item ends without its provider's word: unless it was never begun, nobody knows its end."""
    return {"wordless": True, "tried": tried, "replays": landed.replay_count}


def _error(transition: Transition) -> dict[str, Any]:
    failure = transition.failure
    if failure is None:
        return {"code": "TASK_EXECUTION_FAILED", "message": None, "type": "unknown"}
    # What the handler says follows from a poll, if there is a job; all else (a dead worker) does not. Nor does what
    # took too long: polls that fail are not counted.
    said = {"last": True} if failure.reason == "handler_failed" and failure.code != TOO_LONG else {}
    return {**said, "code": str(failure.code), "message": failure.message[:MOST_MESSAGE], "type": str(failure.type)}


def about(facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the batch and the round of an item; None of another task."""
    return {"batch": facts["batch"], "round": facts["round"]} if "ordinal" in facts else None


def why_withheld(row: Mapping[str, Any]) -> Withheld:
    """Returns why an item is not retried, and what to do instead."""
    batch, state = row["batch"], row["state"]
    if state is None:
        return Withheld(f"its batch {batch} is not kept any more", "create a new batch of what is still wanted")
    if row["round"] != row["meant"]:
        why = f"its batch {batch} has started it again, in round {row['round']}"
        return Withheld(why, f"redrive batch items {batch} shows what became of it")
    if state == "processing":
        why = f"its batch {batch} is about to be settled"
        return Withheld(why, f"then redrive batch retry-failed {batch} starts its failed items again")
    why = f"its batch {batch} is settled ({state})"
    return Withheld(why, f"redrive batch retry-failed {batch} starts its failed items again, as a new charge")


GUARD = RetryGuard("remote_closed", about, why_withheld)
