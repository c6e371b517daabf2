"""Replays failed events: they are tried again, from their first attempt on. It is the replay of tasks, of the queues of
projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.ports.store import Store
from redrive.ops.operations.selection import Selection, select
from redrive.outbox.event import queue_of

DEFAULT_LIMIT = 100
MOST = 1_000_000  # events of one replay


@dataclass(slots=True, frozen=True)
class Part:
    """What a replay is about, of one projection: the first of what failed."""

    projection: str
    selection: Selection

    @property
    def number(self) -> int:
        return self.selection.number


@dataclass(slots=True, frozen=True)
class ReplayPlan:
    """What a replay is about, projection after projection: what fails later is another matter. ``approval`` says why a
    second operator would have to agree."""

    parts: Sequence[Part]
    approval: str | None = None

    @property
    def number(self) -> int:
        return sum(part.number for part in self.parts)

    @property
    def selections(self) -> list[Selection]:
        return [part.selection for part in self.parts]


async def plan_replay(store: Store, projections: Sequence[str], limit: int, forgotten: bool) -> list[Part]:
    """Returns what a replay of these projections would be about, at most ``limit`` events of all of them together."""
    parts: list[Part] = []
    left = limit
    for name in projections:
        which = FailureFilter(queue=queue_of(name), forgotten=forgotten or None)
        parts.append(Part(name, await select(store, which, left)))
        left -= parts[-1].number
    return parts
