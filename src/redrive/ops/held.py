"""Which waiting tasks of each queue are held back because their kind is paused, and by whom, or by an open circuit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from redrive.kernel.circuit import CircuitRow
from redrive.kernel.reads import Count, HoldRow, Overview
from redrive.kernel.task import State
from redrive.ops.text import span


@dataclass(slots=True, frozen=True)
class HeldKind:
    """What keeps a kind from running, its pause or else its open circuit, and how many queued tasks of one queue."""

    kind: str
    tasks: int
    pause: HoldRow | None = None
    circuit: CircuitRow | None = None

    def told(self, overview: Overview) -> str:
        by = ""
        if self.pause is not None:
            by = f"paused by {self.pause.actor} {span(overview.now - self.pause.at)} ago"
        elif self.circuit is not None:
            by = f"whose circuit {self.circuit.name} is open since {span(overview.now - self.circuit.since)}"
        return f"{self.tasks:,} of kind {self.kind}, {by}"


@dataclass(slots=True, frozen=True)
class HeldQueue:
    """What of a queue is ``queued``, and the held kinds that these are of, by which most are held first."""

    queued: int
    kinds: tuple[HeldKind, ...]

    @property
    def whole(self) -> bool:
        """True where nothing of it may run, though the queue itself is not paused."""
        return bool(self.kinds) and sum(one.tasks for one in self.kinds) == self.queued

    def told(self, overview: Overview) -> str:
        """Returns it in words, such as "all 60 of kind SHIP, paused by ann 5 h ago"."""
        named = [one.told(overview) for one in self.kinds]
        return ("all " if self.whole and len(named) == 1 else "") + "; ".join(named)


def held_queues(counts: Iterable[Count], overview: Overview) -> dict[str, HeldQueue]:
    """Returns the queues in which tasks of held kinds wait."""
    queued: dict[str, int] = {}
    held: dict[str, list[HeldKind]] = {}
    for one in counts:
        if one.state is not State.QUEUED or not one.n:
            continue
        queued[one.queue] = queued.get(one.queue, 0) + one.n
        pause, circuit = overview.pause_of("kind", one.kind), overview.circuit_of(one.kind)
        if pause is not None or circuit is not None:
            held.setdefault(one.queue, []).append(HeldKind(one.kind, one.n, pause, circuit))
    return {
        queue: HeldQueue(queued[queue], tuple(sorted(kinds, key=lambda one: -one.tasks)))
        for queue, kinds in held.items()
    }
