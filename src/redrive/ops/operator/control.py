"""Queues and kinds: list, pause, resume, limit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from redrive.errors import ChangedMeanwhile
from redrive.kernel.ports.store import Count, HoldRow, LimitRow, Overview, Query
from redrive.kernel.task import State, check_name
from redrive.ops import actions, inspect
from redrive.ops.access import Role
from redrive.ops.circuits import OpenCircuit, open_circuit
from redrive.ops.held import HeldQueue, held_queues
from redrive.ops.inspect import Stats
from redrive.ops.operator.session import Service
from redrive.ops.workers import live_workers

_STATES = [state.value for state in State]
Change = tuple[int | None, int | None]  # what somebody has seen, and what they want instead


@dataclass(slots=True, frozen=True)
class Queue:
    name: str
    paused: HoldRow | None
    workers: int
    totals: dict[str, int]
    held: HeldQueue | None = None  # back by paused kinds


@dataclass(slots=True, frozen=True)
class Kind:
    name: str
    paused: HoldRow | None
    limit: LimitRow | None
    totals: dict[str, int]
    dead_letters: int = 0
    unserved: tuple[str, ...] = ()  # queues in which tasks of it wait, and that no live worker serves
    stopped: tuple[str, ...] = ()  # queues in which tasks of it wait, and that are paused
    circuit: OpenCircuit | None = None  # that its tasks wait for
    forgotten: int = 0  # of its cancelled tasks


@dataclass(slots=True, frozen=True)
class Traffic:
    """Everything that can be paused or limited, by name, and what is paused."""

    queues: list[Queue]
    kinds: list[Kind]
    holds: list[HoldRow]


class ControlService(Service):
    async def look(self) -> Traffic:
        """Returns queues, kinds and pauses together, read once."""
        self._session.may(Role.VIEWER)
        stats = await inspect.stats(self._store, 0)
        queues = await asyncio.to_thread(self._queues, stats.counts, stats.overview)  # there may be many
        return Traffic(queues, await asyncio.to_thread(self._kinds, stats), stats.overview.holds)

    async def queues(self, after: str = "", limit: int | None = None) -> list[Queue]:
        """Returns every queue that has or had tasks, is served, is paused, or is named by the application; those of
        features once they are used. By name: ``after`` one, and no more than ``limit``."""
        self._session.may(Role.VIEWER)
        overview, counts = await self._store.overview(), await self._store.counts()
        return await asyncio.to_thread(self._queues, counts, overview, after, limit)  # there may be many

    async def kinds(self, after: str = "", limit: int | None = None) -> list[Kind]:
        """Returns every kind, with its totals, limits and pause; by name, as queues."""
        self._session.may(Role.VIEWER)
        return await asyncio.to_thread(self._kinds, await inspect.stats(self._store, 0), after, limit)

    def _queues(
        self, counts: Sequence[Count], overview: Overview, after: str = "", limit: int | None = None
    ) -> list[Queue]:
        totals = Stats(list(counts), overview, []).by("queue")
        served = Counter(queue for row in live_workers(overview) for queue in set(row.queues))
        unused = self._session.registry.feature_queues() - inspect.queues_in_use(counts, overview)
        names = _page(inspect.queues_of(counts, overview, self._session.queues) - unused, after, limit)
        held = held_queues(counts, overview)
        return [
            Queue(name, overview.pause_of("queue", name), served[name], totals.get(name) or _none(), held.get(name))
            for name in names
        ]

    def _kinds(self, stats: Stats, after: str = "", limit: int | None = None) -> list[Kind]:
        unused = self._session.registry.brought - inspect.kinds_in_use(stats.counts, stats.overview)
        names = inspect.kinds_of(stats.counts, stats.overview, self._session.kinds) - unused
        return _kinds(_page(names, after, limit), stats)

    async def holds(self) -> list[HoldRow]:
        """Returns everything that is paused, besides single tasks."""
        self._session.may(Role.VIEWER)
        return (await self._store.overview()).holds

    async def check_queue(self, name: str) -> None:
        """Refuses a queue that nobody knows."""
        self._session.may(Role.VIEWER)
        await self._session.check_queue(check_name(name, "queue"))

    async def has_tasks(self, target: str, name: str) -> bool:
        """Returns whether a ``queue``, ``kind`` or ``group`` has a task, live or finished."""
        self._session.may(Role.VIEWER)
        queue, kind, group = (name if target == one else None for one in ("queue", "kind", "group"))
        return bool(await self._store.find(Query(kind=kind, queue=queue, group=group, limit=1, brief=True)))

    async def has_any(self, target: str, name: str) -> bool:
        """Returns whether there are tasks of it, or it is paused."""
        paused = any((hold.target, hold.name) == (target, name) for hold in await self.holds())
        return paused or await self.has_tasks(target, name)

    async def limits(self, kind: str | None = None) -> list[LimitRow]:
        """Returns the limits of all kinds that have one, or of this kind."""
        self._session.may(Role.VIEWER)
        if kind is not None:
            await self._session.check_kind(kind)
        rows = (await self._store.overview()).limits
        return [row for row in rows if (row.limited if kind is None else row.kind == kind)]

    async def set_limit(self, kind: str, *, concurrency: int | None = None, rate_ms: int | None = None) -> Kind:
        """Sets what the whole fleet may do with a kind, from now on; None is no limit."""
        who = self._session.may(Role.ADMIN)
        await self._session.check_kind(kind)
        await actions.set_limit(self._store, kind, concurrency=concurrency, rate_ms=rate_ms, actor=who)
        return _kinds([kind], await inspect.stats(self._store, 0))[0]

    async def change_limit(self, kind: str, **changes: Change) -> None:
        """Changes ``concurrency`` or ``rate_ms`` of a kind, and leaves the other as it is; refused where somebody else
        has changed the same one since it was seen."""
        self._session.may(Role.ADMIN)
        row = next(iter(await self.limits(kind)), None)
        found = {name: None if row is None else getattr(row, name) or None for name in ("concurrency", "rate_ms")}
        for name, (seen, wanted) in changes.items():
            if found[name] not in (seen, wanted):
                raise ChangedMeanwhile(
                    f"meanwhile somebody has set {name} of {kind} to {found[name] or 'no limit'}",
                    hint="look at it and try again",
                )
        then = found | {name: wanted for name, (_, wanted) in changes.items()}
        if then != found:
            await self.set_limit(kind, **then)

    async def pause(self, target: str, name: str, reason: str | None = None, *, force: bool = False) -> bool:
        """Pauses a ``queue``, ``kind`` or ``group``: nothing of it is claimed any more; what runs goes on. False when
        it was paused already. ``force``: also a queue or kind that nobody has used yet."""
        return await self._turn(target, name, True, reason, force)

    async def resume(self, target: str, name: str, reason: str | None = None, *, force: bool = False) -> bool:
        return await self._turn(target, name, False, reason, force)

    async def _turn(self, target: str, name: str, on: bool, reason: str | None, force: bool) -> bool:
        who = self._session.may(Role.OPERATOR)
        if target == "queue" and not force:
            await self._session.check_queue(name)
        if target == "kind" and not force:
            await self._session.check_kind(name)
        return await actions.hold(self._store, target, name, actor=who, reason=reason, on=on)


def _page(names: Iterable[str], after: str, limit: int | None) -> list[str]:
    return sorted(name for name in names if name > after)[:limit]


def _none() -> dict[str, int]:
    return dict.fromkeys(_STATES, 0)


def _kinds(names: Sequence[str], stats: Stats) -> list[Kind]:
    overview = stats.overview
    limits = {limit.kind: limit for limit in overview.limits}
    totals, letters, forgotten = stats.by("kind"), stats.dead_letters(), stats.forgotten()
    served = {queue for row in live_workers(overview) for queue in row.queues}
    waiting: dict[str, list[str]] = {}
    for one in stats.counts:
        if one.state is State.QUEUED and one.n:
            waiting.setdefault(one.kind, []).append(one.queue)
    return [
        Kind(
            name,
            overview.pause_of("kind", name),
            limits.get(name),
            totals.get(name) or _none(),
            letters.get(name, 0),
            tuple(queue for queue in waiting.get(name, ()) if queue not in served),
            tuple(queue for queue in waiting.get(name, ()) if overview.pause_of("queue", queue) is not None),
            open_circuit(overview, name),
            forgotten.get(name, 0),
        )
        for name in names
    ]
