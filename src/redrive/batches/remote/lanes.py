"""Lanes: how the items of a batch come to be tasks, and what their moves leave in their rows.

A batch begins with as many tasks as may be started at once. When the start of the item at place ``i`` has landed, or it
has ended before that, its settlement brings the one at ``i + lanes``: so never more than that wait to be started, other
batches come in between, and of 100,000 items only those that run are tasks. One whose start fails again and again steps
out of its lane, and brings the next as well. Pure: all of it is in the task's facts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE, ItemState
from redrive.batches.remote.item_memo import ItemMemo
from redrive.batches.remote.names import ITEM_ATTEMPTS, ITEM_KEY, QUEUE, TOO_LONG
from redrive.errors import ErrorCode
from redrive.ids import new_id
from redrive.kernel.feature import Belongs
from redrive.kernel.machine import Event, Transition
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.kernel.task import NewTask, State

BATCH_CANCELLED = "its batch was cancelled"
BY_PROVIDER = "the provider cancelled the job"
BATCH_SETTLED = "its batch is settled: its failed items are started again with redrive batch retry-failed"
MOST_MESSAGE = 2_000


@dataclass(slots=True, frozen=True)
class Lane:
    """Where a task stands among the items of its batch: what its facts say."""

    batch: str
    round: int
    ordinal: int
    total: int
    lanes: int
    kind: str

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Lane:
        return cls(**{name: facts[name] for name in cls.__slots__})

    @property
    def place(self) -> dict[str, Any]:
        """Where its row is."""
        return {"batch": self.batch, "round": self.round, "ordinal": self.ordinal}

    def next(self) -> Lane | None:
        """Returns the place that follows in this lane."""
        at = self.ordinal + self.lanes
        return None if at > self.total else Lane(self.batch, self.round, at, self.total, self.lanes, self.kind)

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
            facts=json.dumps({name: getattr(self, name) for name in self.__slots__}),
            join=join,
            own=True,
        )


def brought(lanes: list[tuple[Lane, NewTask]]) -> Rows:
    """Returns the rows that say which tasks items have from now on."""
    return Rows(FEATURE, "items_brought", tuple({**lane.place, "task": str(task.id)} for lane, task in lanes))


def react(transition: Transition, landed: Landed) -> Effects | None:
    """Returns what lands with a move of an item's task: its row, and the next item of its lane."""
    if "ordinal" not in landed.facts:
        return None
    lane = Lane.of(landed.facts)
    if landed.state is State.CANCELLED and transition.reason == BATCH_SETTLED:
        return Effects(rows=[Rows(FEATURE, "items_left", (lane.place,))])
    memo = ItemMemo.of(json.loads(transition.memo) if transition.event in _SAYS and transition.memo else None)
    change = _change(transition, landed, memo)
    if change is None:
        return None
    rows = [Rows(FEATURE, "items_moved", ({**lane.place, **change},))]
    following = lane.next() if _goes_on(transition, landed, memo) else None
    if following is None:
        return Effects(rows=rows)
    task = following.task(landed.join, landed.scope)
    return Effects(tasks=[task], rows=[*rows, brought([(following, task)])])


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
