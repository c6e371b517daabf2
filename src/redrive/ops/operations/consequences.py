"""Says what an operation does to its tasks, and whether that can be taken back, for whoever has to agree to it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from redrive.kernel.operation import Action, failures
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.reads import HoldRow, Overview
from redrive.kernel.records import Record
from redrive.kernel.task import WAITING
from redrive.kernel.wording import counted
from redrive.ops.circuits import describe
from redrive.ops.operations.selection import Matches
from redrive.ops.workers import live_workers

FIRST_TASKS_LOOKED_AT = 500  # where no totals say of which queues and kinds they are
MOST_OBSTACLES = 20


def consequence(action: str, number: int) -> str:
    """Returns in plain words what becomes of so many tasks."""
    single, tasks = number == 1, counted(number)
    becomes, it_can = ("becomes", "it can") if single else ("become", "each can")
    match Action(action):
        case Action.PURGE:
            waiting = tasks.replace(" task", " waiting task")
            return (
                f"{waiting} {becomes} cancelled, and {'does' if single else 'do'} not run; {it_can} be retried by its"
                " id for as long as history keeps it, or all are put back from the page of the operation"
            )
        case Action.CANCEL:
            return (
                f"{tasks} that {'has' if single else 'have'} not ended {becomes} cancelled; what runs is asked to stop"
            )
        case Action.FORGET:
            failed = tasks.replace(" task", " failed task")
            return f"{failed} {becomes} cancelled and forgotten; {it_can} be retried by its id while history keeps it"
        case Action.RETRY:
            return f"{tasks} {'runs' if single else 'run'} again, with fresh attempts"
        case Action.ERASE:
            return "what is known is removed for good: nothing brings it back"
        case Action.WORK:
            return "a feature does what was asked of it, piece by piece"


@dataclass(slots=True, frozen=True)
class WaitingTasks:
    """The waiting tasks that a purge is about, as of now: since when the first of those that could run waits, when the
    latest was made, and the pauses behind which they wait."""

    oldest: datetime | None
    newest: datetime | None
    pauses: tuple[HoldRow, ...]


async def waiting_tasks(store: Store, approval: Record) -> WaitingTasks | None:
    """Returns what somebody wants to purge; None of other operations."""
    if approval.body["action"] != Action.PURGE:
        return None
    which = failures(approval.body["filter"])
    latest = await store.find(Query(WAITING, which.kind, which.queue, limit=1, brief=True))
    oldest = (
        (await store.figures()).oldest_kinds.get(which.kind)
        if which.kind is not None
        else (await store.diagnose()).oldest.get(which.queue or "")
    )
    overview = await store.overview()
    targets = (("kind", which.kind), ("queue", which.queue))
    pauses = [overview.pause_of(target, name) for target, name in targets if name is not None]
    newest = latest[0].created_at if latest else None
    return WaitingTasks(oldest, newest, tuple(one for one in pauses if one is not None))


@dataclass(slots=True, frozen=True)
class Obstacle:
    """What keeps tasks from running once they are retried, how many of them, and the command against it. ``pause``
    or ``circuit``: that somebody can end, or probe."""

    code: str  # as in ``why``: paused, circuit, no_worker
    about: str
    tasks: int
    fix: str
    at_least: bool = False  # there may be more: only the first ones were looked at
    pause: HoldRow | None = None
    circuit: str | None = None

    @property
    def text(self) -> str:
        number = f"at least {counted(self.tasks)}" if self.at_least else counted(self.tasks)
        return f"{self.about}: {number} of these would wait"

    @property
    def document(self) -> dict[str, object]:
        return {"code": self.code, "text": self.text, "tasks": self.tasks, "fix": self.fix}


async def obstacles(store: Store, matches: Matches) -> list[Obstacle]:
    """Returns what would keep these tasks from running if they were retried now, the largest first."""
    if not matches.total:
        return []
    which, labels = matches.which, Counter[tuple[str, str, str | None]]()
    if not which.unsummed and matches.failed:
        for one in await store.failed_counts(None if which.fingerprint is None else [which.fingerprint]):
            if which.sums(one):
                labels[one.queue, one.kind, one.group] += one.n
        some = False
    else:
        first = await matches.first(store, FIRST_TASKS_LOOKED_AT)
        for task in (await store.get_many([one.id for one in first], documents=0)).values():
            labels[task.queue, task.kind, task.group] += 1
        some = matches.total > len(first)
    found = _obstacles(labels, await store.overview(), some)
    return sorted(found, key=lambda one: -one.tasks)[:MOST_OBSTACLES]


def _obstacles(labels: Mapping[tuple[str, str, str | None], int], overview: Overview, some: bool) -> list[Obstacle]:
    served = {queue for worker in live_workers(overview) for queue in worker.queues}
    held, open_ones, unserved = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    for (queue, kind, group), n in labels.items():
        for target, name in (("queue", queue), ("kind", kind), ("group", group)):
            if name is not None and overview.pause_of(target, name) is not None:
                held[target, name] += n
        if (circuit := overview.circuit_of(kind)) is not None:
            open_ones[circuit.name] += n
        if queue not in served:
            unserved[queue] += n
    found = list[Obstacle]()
    for (target, name), n in held.items():
        pause = overview.pause_of(target, name)
        assert pause is not None
        about = f"{target} {name} is paused by {pause.actor}" + (f" ({pause.reason})" if pause.reason else "")
        fix = f"redrive resume --{target} {shlex.quote(name)}"
        found.append(Obstacle("paused", about, n, fix, some, pause))
    for circuit in overview.circuits:
        if n := open_ones[circuit.name]:
            about = f"circuit {circuit.name} is {describe(circuit, overview.now)}"
            fix = f"redrive circuits probe {shlex.quote(circuit.name)}"
            found.append(Obstacle("circuit", about, n, fix, some, circuit=circuit.name))
    for queue, n in unserved.items():
        fix = f"redrive work --app module:app --queue {shlex.quote(queue)}"
        found.append(Obstacle("no_worker", f"no live worker serves queue {queue}", n, fix, some))
    return found
