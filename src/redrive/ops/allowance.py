"""What one operator may do alone: so many tasks within a while, in one request or in many.

What somebody retried or gave up without a second person is a small document per person. It changes in the same
transaction as the tasks, so two requests at once, by whatever way and with whatever token, cannot both count from the
same sum: one of them is refused, looks again, and is judged by the new one.
"""

from __future__ import annotations

import asyncio
import random
import time
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from redrive.errors import ApprovalNeeded, ChangedMeanwhile
from redrive.kernel.commit import Applied
from redrive.kernel.records import Put
from redrive.kernel.store import Store
from redrive.ops.wording import counted

COLLECTION = "alone"
PATIENCE_S = 10.0
T = TypeVar("T")
Act = Callable[[Sequence[Put]], Awaitable[T]]


@dataclass(slots=True, frozen=True)
class Rule:
    """More than ``above`` tasks within ``window`` need a second operator; None: nothing does."""

    above: int | None = None
    window: timedelta = timedelta(hours=1)


FREE = Rule()


@dataclass(slots=True, frozen=True)
class Recent:
    """What somebody did alone within the window, by the minute; minutes are those of the document's life."""

    actor: str
    rule: Rule
    done: Mapping[int, int] = field(default_factory=dict)
    minute: int = 0
    version: int = 0

    @property
    def total(self) -> int:
        return sum(self.done.values())

    def why_not(self, number: int) -> str | None:
        """Why a second operator has to agree to so many more; None when nobody has to."""
        above = self.rule.above
        if above is None or number + self.total <= above:
            return None
        if number > above or not self.total:
            return f"{counted(number)} {'is' if number == 1 else 'are'} more than {above}"
        span = f"{self.rule.window.total_seconds() / 60:g} minutes"
        return f"{counted(number)} and the {self.total} of {self.actor} within {span} are more than {above}"

    def put(self, number: int) -> Put:
        """So many more, less those that turn out not to move."""

        def body(applied: Applied) -> dict[str, Any]:
            moved = max(number - len(applied.lost), 0)
            done = {**self.done, self.minute: self.done.get(self.minute, 0) + moved}
            return {"actor": self.actor, "minutes": {str(minute): n for minute, n in done.items()}}

        kept = self.rule.window.total_seconds() + 120
        return Put(COLLECTION, person(self.actor), body, self.version, keep=kept)


def person(name: str) -> str:
    """A name as people read it: "Ann" is "ann"."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


async def recent(store: Store, rule: Rule, actor: str) -> Recent:
    record = None if rule.above is None else await store.record(COLLECTION, person(actor))
    if record is None:
        return Recent(actor, rule)
    age = (await store.now() - record.created_at).total_seconds()
    since = age - rule.window.total_seconds()
    # A minute counts until its end is past: nothing is forgotten too early.
    done = {int(at): number for at, number in record.body["minutes"].items() if (int(at) + 1) * 60 > since}
    return Recent(actor, rule, done, int(age // 60), record.version)


async def alone(store: Store, rule: Rule, actor: str, number: int, act: Act[T]) -> T:
    """Let somebody act on so many tasks alone, and count it: ``act`` writes what it is given together with its tasks.
    What needs a second operator is refused, also a single task: a thousand requests for one are a request for a
    thousand."""
    if rule.above is None or not number:
        return await act([])
    ends = time.monotonic() + PATIENCE_S
    while True:
        seen = await recent(store, rule, actor)
        why = seen.why_not(number)
        if why is not None:
            refuse(why)
        try:
            return await act([seen.put(number)])
        except ChangedMeanwhile:  # the same person, at the same moment
            if time.monotonic() > ends:
                raise
            await asyncio.sleep(random.random() * 0.02)  # noqa: S311 - not a secret


def refuse(why: str) -> NoReturn:
    """For what is done at once, and cannot wait for somebody to agree."""
    raise ApprovalNeeded(
        f"a second operator has to agree, because {why}",
        hint="begin it as an operation, which can be approved: redrive retry with a filter, or POST /api/operations",
    )
