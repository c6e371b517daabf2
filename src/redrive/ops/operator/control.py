"""Queues and kinds: list, pause, resume, limit."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, TypeVar

from redrive.errors import ChangedMeanwhile
from redrive.kernel.ports.store import Count, HoldRow, Overview, Query
from redrive.kernel.task import State, check_name
from redrive.ops import actions, inspect
from redrive.ops.access import Role
from redrive.ops.held import HeldKind, held_queues
from redrive.ops.inspect import Stats
from redrive.ops.operator.declared import Given, Open, Page, Reason, action, look, view_of
from redrive.ops.operator.session import Service
from redrive.ops.workers import live_workers

V = TypeVar("V", "QueueView", "KindView")
_STATES = [state.value for state in State]
Change = tuple[int | None, int | None]  # what somebody has seen, and what they want instead
PAGE_SIZE = 500
Target = Annotated[
    str,
    Given("queue, kind or group.", paths={"queues": "queue", "kinds": "kind", "task-groups": "group"}),
]
Name = Annotated[str, Given("Its name.", metavar="NAME")]
MaybeKind = Annotated[str | None, Given("Of this kind; else of all.", metavar="KIND", positional=True)]
KindName = Annotated[str, Given("The kind.", metavar="KIND")]
After = Annotated[str, Given("The name after which the page begins.", metavar="NAME")]
PageSize = Annotated[int, Given("At most so many.", metavar="N", least=1, most=1000)]
Force = Annotated[bool, Given("Also a queue or kind that nobody has used yet.", in_form=False)]
AtOnce = Annotated[int | None, Given("At most so many at once; else any number.", metavar="N", least=1, most=1_000_000)]
Apart = Annotated[
    int | None,
    Given("Starts at least so many milliseconds apart.", metavar="N", option="--rate-ms", least=1, most=86_400_000),
]


def _tasks(one: QueueView | KindView, _: datetime) -> str:
    return ", ".join(f"{n:,} {state}" for state, n in one.totals.items() if n)


def _paused(one: QueueView | KindView, _: datetime) -> str:
    return "" if one.paused is None else f"by {one.paused.actor}"


@dataclass(slots=True, frozen=True)
class PauseView:
    """What is paused, by whom, since when and why."""

    target: Annotated[str, Open("queue, kind, group or schedule.", column="what")]
    name: Annotated[str, Open(column="name")]
    actor: Annotated[str, Open(column="by")]
    reason: Annotated[str | None, Open(column="why")]
    at: Annotated[datetime, Open(column="since")]


@dataclass(slots=True, frozen=True)
class PauseChange:
    """Whether something is paused now; ``changed`` is False where it was so already."""

    target: Annotated[str, Open()]
    name: Annotated[str, Open()]
    paused: Annotated[bool, Open()]
    changed: Annotated[bool, Open()]


def _set_by(one: LimitView, _: datetime) -> str:
    return one.actor or "settings"


@dataclass(slots=True, frozen=True)
class LimitView:
    """What the whole fleet may do with a kind."""

    kind: Annotated[str, Open(column="kind")]
    concurrency: Annotated[int | None, Open("So many run at once, at most.", column="at once")]
    rate_ms: Annotated[int | None, Open("Starts are so many milliseconds apart.", column="ms apart")]
    running: Annotated[int, Open("Counted where there is a limit on them.", column="running")]
    actor: Annotated[str | None, Open("Who set it; null: the settings.", column="set by", cell=_set_by)]
    next_at: Annotated[datetime | None, Open("When the next one may start.")]


@dataclass(slots=True, frozen=True)
class HeldView:
    """A kind whose tasks wait for its pause to end, or for its circuit to close."""

    kind: Annotated[str, Open()]
    tasks: Annotated[int, Open("Of one queue.")]
    pause: Annotated[PauseView | None, Open()]
    circuit: Annotated[str | None, Open("The open circuit.")]


@dataclass(slots=True, frozen=True)
class QueueView:
    """A queue: whether it is paused, who serves it, and what is in it."""

    name: Annotated[str, Open(column="queue")]
    paused: Annotated[PauseView | None, Open(column="paused", cell=_paused)]
    workers: Annotated[int, Open("Workers that serve it.", column="workers")]
    totals: Annotated[dict[str, int], Open("Tasks by state.", column="tasks", cell=_tasks)]
    held: Annotated[list[HeldView], Open("Kinds of its queued tasks that are held back.")]
    all_held: Annotated[bool, Open("Nothing of it may run, though it is not paused itself.")]


@dataclass(slots=True, frozen=True)
class KindView:
    """A kind: whether it is paused, its limits across all workers, and its tasks."""

    name: Annotated[str, Open(column="kind")]
    paused: Annotated[PauseView | None, Open(column="paused", cell=_paused)]
    concurrency: Annotated[int | None, Open("So many run at once, at most.", column="at once")]
    rate_limit_ms: Annotated[int | None, Open("Starts are so far apart.", column="ms apart")]
    running: Annotated[int | None, Open("Of a kind with such a limit.")]
    limited_by: Annotated[str | None, Open("Who set the limits; null: the settings.")]
    circuit: Annotated[str | None, Open("The open circuit that its tasks wait for.", column="circuit")]
    totals: Annotated[dict[str, int], Open("Tasks by state.", column="tasks", cell=_tasks)]
    dead_letters: Annotated[int, Open()]
    forgotten: Annotated[int, Open("Of its cancelled tasks: those that somebody forgot or purged.")]
    unserved: Annotated[list[str], Open("Queues in which tasks of it wait, and that no live worker serves.")]
    stopped: Annotated[list[str], Open("Queues in which tasks of it wait, and that are paused.")]


@dataclass(slots=True, frozen=True)
class Traffic:
    """Everything that can be paused or limited, by name, and what is paused."""

    queues: list[QueueView]
    kinds: list[KindView]
    holds: list[HoldRow]


class ControlService(Service):
    """Queues and kinds: list them, pause, resume, limit."""

    async def traffic(self) -> Traffic:
        """Returns queues, kinds and pauses together, read once."""
        self._session.may(Role.VIEWER)
        stats = await inspect.stats(self._store)
        queues = await asyncio.to_thread(self._queues, stats.counts, stats.overview)  # there may be many
        return Traffic(queues, await asyncio.to_thread(self._kinds, stats), stats.overview.holds)

    @look("GET /api/queues", items="", empty="there is no queue yet")
    async def queues(self, after: After = "", limit: PageSize = PAGE_SIZE) -> Page[QueueView]:
        """Queues by name, with what is in them and who serves them. Those that have or had tasks, are served, are
        paused, or are named by the application; those of features once they are used."""
        overview, counts = await self._store.overview(), await self._store.counts()
        found = await asyncio.to_thread(self._queues, counts, overview, after, limit + 1)  # there may be many
        return _page(found, limit)

    @look("GET /api/kinds", items="", empty="there is no kind yet")
    async def kinds(self, after: After = "", limit: PageSize = PAGE_SIZE) -> Page[KindView]:
        """Kinds by name, with their tasks, limits and pauses."""
        found = await asyncio.to_thread(self._kinds, await inspect.stats(self._store), after, limit + 1)
        return _page(found, limit)

    def _queues(
        self, counts: Sequence[Count], overview: Overview, after: str = "", limit: int | None = None
    ) -> list[QueueView]:
        totals = Stats(list(counts), overview).by("queue")
        served = Counter(queue for row in live_workers(overview) for queue in set(row.queues))
        unused = self._session.registry.feature_queues() - inspect.queues_in_use(counts, overview)
        names = _after(inspect.queues_of(counts, overview, self._session.queues) - unused, after, limit)
        held = held_queues(counts, overview)
        return [
            QueueView(
                name,
                _pause(overview.pause_of("queue", name)),
                served[name],
                totals.get(name) or _none(),
                [_held(one) for one in held[name].kinds] if name in held else [],
                name in held and held[name].whole,
            )
            for name in names
        ]

    def _kinds(self, stats: Stats, after: str = "", limit: int | None = None) -> list[KindView]:
        unused = self._session.registry.brought - inspect.kinds_in_use(stats.counts, stats.overview)
        names = inspect.kinds_of(stats.counts, stats.overview, self._session.kinds) - unused
        return _kinds(_after(names, after, limit), stats)

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

    @look("GET /api/limits", empty="no kind has a limit")
    async def limits(self, kind: MaybeKind = None) -> list[LimitView]:
        """Limits of kinds across all workers: of those that have one, or of this kind."""
        if kind is not None:
            await self._session.check_kind(kind)
        rows = (await self._store.overview()).limits
        return [view_of(LimitView, row) for row in rows if (row.limited if kind is None else row.kind == kind)]

    @action("PUT /api/kinds/{kind}/limits", role=Role.ADMIN, said="limits of {kind} are set for all workers")
    async def set_limit(self, kind: KindName, concurrency: AtOnce = None, rate_limit_ms: Apart = None) -> KindView:
        """Say what the whole fleet may do with a kind, from now on; what is left out is unlimited."""
        await self._session.check_kind(kind)
        await actions.set_limit(self._store, kind, concurrency=concurrency, rate_ms=rate_limit_ms, actor=self._who)
        return _kinds([kind], await inspect.stats(self._store))[0]

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
            await self.set_limit(kind, then["concurrency"], then["rate_ms"])

    @action("POST /api/{target}/{name}/pause", said="the {target} {name} is paused")
    async def pause(self, target: Target, name: Name, reason: Reason = None, force: Force = False) -> PauseChange:
        """Pause a queue, a kind, or a group of tasks of whatever kind: nothing of it is claimed any more, also of what
        comes later; what runs goes on."""
        return await self._turn(target, name, True, reason, force)

    @action("POST /api/{target}/{name}/resume", said="the {target} {name} is not paused")
    async def resume(self, target: Target, name: Name, reason: Reason = None, force: Force = False) -> PauseChange:
        """Let a paused queue, kind or group run again."""
        return await self._turn(target, name, False, reason, force)

    async def _turn(self, target: str, name: str, on: bool, reason: str | None, force: bool) -> PauseChange:
        if target == "queue" and not force:
            await self._session.check_queue(name)
        if target == "kind" and not force:
            await self._session.check_kind(name)
        changed = await actions.hold(self._store, target, name, actor=self._who, reason=reason, on=on)
        return PauseChange(target, name, on, changed)


def _after(names: Iterable[str], after: str, limit: int | None) -> list[str]:
    return sorted(name for name in names if name > after)[:limit]


def _page(found: list[V], limit: int) -> Page[V]:
    return Page(found[:limit], found[limit - 1].name if len(found) > limit else None)


def _pause(row: HoldRow | None) -> PauseView | None:
    return None if row is None else view_of(PauseView, row)


def _held(one: HeldKind) -> HeldView:
    return HeldView(one.kind, one.tasks, _pause(one.pause), None if one.circuit is None else one.circuit.name)


def _none() -> dict[str, int]:
    return dict.fromkeys(_STATES, 0)


def _kinds(names: Sequence[str], stats: Stats) -> list[KindView]:
    overview = stats.overview
    limits = {limit.kind: limit for limit in overview.limits}
    totals, letters, forgotten = stats.by("kind"), stats.dead_letters(), stats.forgotten()
    served = {queue for row in live_workers(overview) for queue in row.queues}
    waiting: dict[str, list[str]] = {}
    for one in stats.counts:
        if one.state is State.QUEUED and one.n:
            waiting.setdefault(one.kind, []).append(one.queue)
    found = []
    for name in names:
        limit, circuit = limits.get(name), overview.circuit_of(name)
        found.append(
            KindView(
                name=name,
                paused=_pause(overview.pause_of("kind", name)),
                concurrency=None if limit is None else limit.concurrency,
                rate_limit_ms=None if limit is None else limit.rate_ms,
                running=limit.running if limit is not None and limit.concurrency is not None else None,
                limited_by=None if limit is None else limit.actor,
                circuit=None if circuit is None else circuit.name,
                totals=totals.get(name) or _none(),
                dead_letters=letters.get(name, 0),
                forgotten=forgotten.get(name, 0),
                unserved=[queue for queue in waiting.get(name, ()) if queue not in served],
                stopped=[queue for queue in waiting.get(name, ()) if overview.pause_of("queue", queue) is not None],
            )
        )
    return found
