"""What is held back: by a pause of its queue or kind, which shows as ``paused`` everywhere, or by an open circuit.

A pause of a queue or kind is a gate at the claim: rows stay ``queued``, however many they are, and none is rewritten;
those of a group are set aside by the claim that meets them. Whoever shows tasks or counts them has them from here, as
what they are to somebody who looks: paused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from redrive.kernel.circuit import CircuitRow
from redrive.kernel.ports.store import Store
from redrive.kernel.reads import Count, HoldRow, Overview, Query
from redrive.kernel.task import State, Task
from redrive.kernel.wording import span

GATES = ("queue", "kind")  # their pauses never move the tasks themselves


def gate_of(queue: str, kind: str, overview: Overview) -> HoldRow | None:
    """Returns the pause that keeps queued tasks of a queue and kind from being claimed."""
    return overview.pause_of("queue", queue) or overview.pause_of("kind", kind)


def is_gated(task: Task) -> bool:
    """Returns whether a task that shows as paused is so by a pause of its queue or kind."""
    return task.state is State.PAUSED and (task.paused_by or "").startswith(tuple(f"{gate}:" for gate in GATES))


def show_paused(tasks: Iterable[Task], overview: Overview) -> None:
    """Has queued tasks that a pause holds back show as paused, by whatever is paused."""
    for task in tasks:
        if task.state is not State.QUEUED:
            continue
        pause = gate_of(task.queue, task.kind, overview) or overview.pause_of("group", task.group or "")
        if pause is not None:
            task.state, task.paused_by = State.PAUSED, f"{pause.target}:{pause.name}"


async def with_pauses(store: Store, tasks: list[Task]) -> list[Task]:
    """Returns the same tasks as they are shown; without a look at the pauses where none of them is queued."""
    if any(task.state is State.QUEUED for task in tasks):
        show_paused(tasks, await store.overview())
    return tasks


def counts_with_pauses(counts: Iterable[Count], overview: Overview) -> list[Count]:
    """Returns totals in which what a pause holds back counts as paused. Totals know no groups: what no claim has set
    aside yet of a paused one counts as queued."""
    if not any(hold.target in GATES for hold in overview.holds):
        return list(counts)
    found: Counter[tuple[str, str, State]] = Counter()
    for one in counts:
        gated = one.state is State.QUEUED and gate_of(one.queue, one.kind, overview) is not None
        found[one.queue, one.kind, State.PAUSED if gated else one.state] += one.n
    return [Count(queue, kind, state, n) for (queue, kind, state), n in found.items()]


async def find_with_pauses(store: Store, query: Query) -> list[Task]:
    """Returns what matches a query by the state that tasks are shown with, newest first."""
    named = set(query.states) & {State.QUEUED, State.PAUSED}
    if len(named) != 1:
        return await with_pauses(store, await store.find(query))
    overview = await store.overview()
    queues, kinds, groups = (
        tuple(hold.name for hold in overview.holds if hold.target == target) for target in (*GATES, "group")
    )
    if not (queues or kinds or groups):
        return await store.find(query)
    others = tuple(state for state in query.states if state is not State.QUEUED)
    queries = [replace(query, states=others)] if others else []
    if State.QUEUED in named:
        queries.append(replace(query, states=(State.QUEUED,), not_queues=queues, not_kinds=kinds, not_groups=groups))
    else:
        gated = replace(query, states=(State.QUEUED,))
        queries += [replace(gated, queue=name) for name in queues if query.queue in (None, name)]
        queries += [replace(gated, kind=name) for name in kinds if query.kind in (None, name)]
        queries += [replace(gated, group=name) for name in groups if query.group in (None, name)]
    found = {task.id: task for one in queries for task in await store.find(one)}
    tasks = sorted(found.values(), key=lambda task: task.id.int, reverse=True)[: query.limit]
    show_paused(tasks, overview)
    return tasks


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
