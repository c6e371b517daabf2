"""Decides what one operator may do alone: so many tasks within a while, in one request or in many.

Whatever moves tasks for an operator is a ``PlannedAction``, and ``judge`` is the only place that decides whether a
second operator has to agree to one. What somebody retried or gave up alone is a small document per person. It changes
in the same transaction as the tasks, so two requests at once, by whatever way and with whatever token, cannot both
count from the same sum: one of them is refused, reads it again, and is judged by the new one.

An operation counts in full from the moment it is begun, and with what it has moved as soon as it is over: who tries a
few first and stops there has retried a few.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar

from redrive.errors import ApprovalNeeded, ChangedMeanwhile
from redrive.kernel.applied import Applied
from redrive.kernel.operation import COLLECTION as OPERATIONS
from redrive.kernel.operation import FINAL, Action
from redrive.kernel.ports.store import Store
from redrive.kernel.records import Put
from redrive.kernel.wording import counted
from redrive.ops.people import person

COLLECTION = "alone"
PATIENCE_S = 10.0
MOST_OPERATIONS = 50  # are looked at again; those before them stay counted in full
# What is done at once cannot wait for somebody to agree; an operation can.
BULK = {
    Action.RETRY: "redrive retry with a filter",
    Action.FORGET: "redrive forget with a filter",
    Action.PURGE: "redrive purge of waiting tasks by queue or kind, redrive forget of failed ones with a filter",
    Action.CANCEL: "the command of its feature",
    Action.ERASE: "redrive erase",
    Action.WORK: "the command of its feature",
}
T = TypeVar("T")
Act = Callable[[Sequence[Put]], Awaitable[T]]


@dataclass(slots=True, frozen=True)
class Rule:
    """More than ``above`` tasks within ``window`` need a second operator; None: nothing does. ``book``: where they are
    counted, for what is counted apart from tasks, and ``noun``, what these are."""

    above: int | None
    window: timedelta = timedelta(hours=1)
    book: str = ""
    noun: str = "task"

    def counted_at(self, actor: str) -> str:
        """Returns the name of the document that counts what somebody did."""
        return f"{self.book}/{person(actor)}" if self.book else person(actor)

    def counted(self, number: int) -> str:
        """Returns a number with its noun."""
        return counted(number) if self.noun == "task" else f"{number:,} {self.noun}"


UNRESTRICTED = Rule(None)  # of the application's own code, which is no operator


@dataclass(slots=True, frozen=True)
class PlannedAction:
    """Something that is about to be done to ``number`` tasks; ``action`` is what it is, or what it amounts to; None
    of what is none on tasks. ``always``: why it needs a second operator however few they are; None: only its number
    counts. ``operation``: that will do it, piece by piece."""

    action: Action | None
    number: int
    always: str | None = None
    operation: str | None = None


@dataclass(slots=True, frozen=True)
class Verdict:
    """``why`` a second operator has to agree; None when nobody has to. ``puts`` count the action, and land with it."""

    why: str | None
    puts: tuple[Put, ...] = ()


async def judge(store: Store, rule: Rule, actor: str, planned: PlannedAction) -> Verdict:
    """Decides whether a second operator has to agree, given what the same person did lately."""
    if rule.above is None:
        return Verdict(None)
    if planned.always is not None:
        return Verdict(planned.always)
    if not planned.number:
        return Verdict(None)
    seen = await _recent(store, rule, actor)
    if seen.operations and seen.why_not(planned.number) is not None:
        seen = await _settled(store, seen)
    return Verdict(seen.why_not(planned.number), (seen.put(planned),))


async def alone(store: Store, rule: Rule, actor: str, planned: PlannedAction, act: Act[T]) -> T:
    """Runs ``act`` for somebody who acts alone, and counts it: ``act`` writes the documents it is given together with
    its tasks. What needs a second operator is refused (ApprovalNeeded), also a single task: a thousand requests for one
    are a request for a thousand."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        verdict = await judge(store, rule, actor, planned)
        if verdict.why is not None:
            raise ApprovalNeeded(verdict.why, hint=_hint(planned))
        try:
            return await act(verdict.puts)
        except ChangedMeanwhile:  # the same person, at the same moment
            if not verdict.puts or time.monotonic() > ends:
                raise
            await asyncio.sleep(random.random() * 0.02)  # noqa: S311 - not a secret


def _hint(planned: PlannedAction) -> str | None:
    if planned.action is None:
        return None
    way = f"{BULK[planned.action]}, or POST /api/operations"
    return f"begin it as an operation, which can be approved: {way}"


@dataclass(slots=True, frozen=True)
class _Recent:
    """What somebody did alone within the window, by the minute since the document was made. ``operations``: the minute
    and the number of those that may still be under way."""

    actor: str
    rule: Rule
    done: Mapping[int, int] = field(default_factory=dict)
    operations: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    minute: int = 0
    version: int = 0

    @property
    def total(self) -> int:
        return sum(self.done.values()) + sum(number for _, number in self.operations.values())

    def why_not(self, number: int) -> str | None:
        """Returns why a second operator has to agree to so many more; None when nobody has to."""
        above = self.rule.above
        if above is None or number + self.total <= above:
            return None
        if number > above or not self.total:
            return f"{self.rule.counted(number)} {'is' if number == 1 else 'are'} more than {above:,}"
        minutes = self.rule.window.total_seconds() / 60
        span = f"{minutes:g} minutes" if minutes <= 120 else f"{minutes / 60:g} hours"
        before = f"the {self.total:,} of {self.actor} within {span}"
        return f"{self.rule.counted(number)} and {before} are more than {above:,}"

    def over(self, operation: str, number: int) -> _Recent:
        """Returns the same with one of its operations over, which has moved so many."""
        minute, _ = self.operations[operation]
        left = {name: one for name, one in self.operations.items() if name != operation}
        return replace(self, done=_added(self.done, minute, number), operations=left)

    def put(self, planned: PlannedAction) -> Put:
        """Returns the document with so many more, less those that turn out not to move."""

        def body(applied: Applied) -> dict[str, Any]:
            done, operations = self.done, dict(self.operations)
            if planned.operation is not None and len(operations) < MOST_OPERATIONS:
                operations[planned.operation] = self.minute, planned.number
            else:
                # What is counted in a book of its own is an amount: tasks that others moved take nothing off.
                unmoved = 0 if self.rule.book else len(applied.lost) + len(applied.asked_before)
                done = _added(done, self.minute, max(planned.number - unmoved, 0))
            minutes = {str(minute): n for minute, n in done.items()}
            return {"actor": self.actor, "minutes": minutes, "operations": operations}

        kept = self.rule.window.total_seconds() + 120
        return Put(COLLECTION, self.rule.counted_at(self.actor), body, self.version, keep=kept)


async def _recent(store: Store, rule: Rule, actor: str) -> _Recent:
    record = await store.record(COLLECTION, rule.counted_at(actor))
    if record is None:
        return _Recent(actor, rule)
    age = (await store.now() - record.created_at).total_seconds()
    since = age - rule.window.total_seconds()
    # A minute counts until its end is past: nothing is forgotten too early.
    done = {int(at): number for at, number in record.body["minutes"].items() if (int(at) + 1) * 60 > since}
    begun = {name: (at, number) for name, (at, number) in record.body.get("operations", {}).items()}
    operations = {name: one for name, one in begun.items() if (one[0] + 1) * 60 > since}
    return _Recent(actor, rule, done, operations, int(age // 60), record.version)


async def _settled(store: Store, seen: _Recent) -> _Recent:
    """Returns the same with operations that are over counted by what they have moved."""
    for name in seen.operations:
        record = await store.record(OPERATIONS, name)
        if record is not None and record.state in FINAL:
            seen = seen.over(name, int(record.body["done"]))
    return seen


def _added(done: Mapping[int, int], minute: int, number: int) -> dict[int, int]:
    return {**done, minute: done.get(minute, 0) + number}
