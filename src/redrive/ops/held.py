"""Which waiting tasks of each queue are held back because their kind is paused, and by whom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from redrive.kernel.reads import Count, HoldRow, Overview
from redrive.kernel.task import State
from redrive.ops.text import span


@dataclass(slots=True, frozen=True)
class HeldKind:
    """The pause of a kind, and how many queued tasks of one queue it keeps from running."""

    pause: HoldRow
    tasks: int


@dataclass(slots=True, frozen=True)
class HeldQueue:
    """What of a queue is ``queued``, and the paused kinds that these are of, by which most are held first."""

    queued: int
    kinds: tuple[HeldKind, ...]

    @property
    def whole(self) -> bool:
        """True where nothing of it may run, though the queue itself is not paused."""
        return bool(self.kinds) and sum(one.tasks for one in self.kinds) == self.queued

    def told(self, overview: Overview) -> str:
        """Returns it in words, such as "all 60 of kind SHIP, paused by ann 5 h ago"."""
        named = [
            f"{one.tasks:,} of kind {one.pause.name}, paused by {one.pause.actor}"
            f" {span(overview.now - one.pause.at)} ago"
            for one in self.kinds
        ]
        return ("all " if self.whole and len(named) == 1 else "") + "; ".join(named)


def held_queues(counts: Iterable[Count], overview: Overview) -> dict[str, HeldQueue]:
    """Returns the queues in which tasks of paused kinds wait."""
    queued: dict[str, int] = {}
    held: dict[str, list[HeldKind]] = {}
    for one in counts:
        if one.state is not State.QUEUED or not one.n:
            continue
        queued[one.queue] = queued.get(one.queue, 0) + one.n
        if (pause := overview.pause_of("kind", one.kind)) is not None:
            held.setdefault(one.queue, []).append(HeldKind(pause, one.n))
    return {
        queue: HeldQueue(queued[queue], tuple(sorted(kinds, key=lambda one: -one.tasks)))
        for queue, kinds in held.items()
    }
