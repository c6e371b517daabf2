"""Reads for operators: totals, lists of tasks, known queues and kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput, TaskNotFound, UnknownKind, UnknownQueue
from redrive.kernel.handler_notes import Stray
from redrive.kernel.payload import CUT, JsonText, readable
from redrive.kernel.ports.store import (
    Count,
    LetterCount,
    Overview,
    Query,
    Store,
    WorkerLeases,
    WorkerRow,
)
from redrive.kernel.task import LIVE, State, Task, Timeline
from redrive.ops.handler_notes import strays
from redrive.ops.held import counts_with_pauses, find_with_pauses
from redrive.ops.pages import in_pieces
from redrive.ops.workers import OUTSIDE, Lost, live_workers, lost

NOT_KEPT = "it may be older than the history that is kept"
LOST = ("lease_expired", "worker_lost")  # reasons of attempts that ended without their worker's word
WHOLE_ID, SHORTEST_ID = 32, 8  # digits: of fewer than eight, many tasks of the same minutes begin alike
MOST_MEANT = 3
_STATES = tuple(state.value for state in State)
EARLIER_STATES = {"waiting": State.QUEUED, "executing": State.RUNNING}  # as they were called in an earlier system


@dataclass(slots=True)
class Stats:
    """Exact totals, and the pauses, limits and workers that explain them."""

    counts: list[Count]
    overview: Overview
    letters: list[LetterCount] = field(default_factory=list)
    leases: list[WorkerLeases] = field(default_factory=list)
    strays: list[Stray] = field(default_factory=list)  # handlers that run on though they were given up

    def lost(self) -> list[Lost]:
        """Tasks whose workers are silent."""
        return lost(self.leases, self.overview)

    def held_by(self, worker: WorkerRow) -> int:
        """Returns how many tasks run on a worker, as the store has it; what a worker says of itself is a heartbeat
        old."""
        name = worker.id.rpartition(" (")[0] if worker.host == OUTSIDE else worker.id
        meant = [one for one in self.leases if one.worker_id == name]
        return sum(one.tasks for one in meant if worker.host != OUTSIDE or one.queue in worker.queues)

    def alive(self) -> int:
        """Returns how many workers are heard of, executors included."""
        return len(live_workers(self.overview))

    @property
    def shown(self) -> list[Count]:
        """Totals in which what a pause holds back counts as paused."""
        return counts_with_pauses(self.counts, self.overview)

    def totals(self) -> dict[str, int]:
        """Returns tasks by state, over everything."""
        found: Counter[State] = Counter()
        for count in self.shown:
            found[count.state] += count.n
        return {state.value: found[state] for state in State}

    def dead_letters(self) -> dict[str, int]:
        """Returns how many dead letters each kind has; they stay when the task is retried."""
        found: Counter[str] = Counter()
        for count in self.letters:
            found[count.kind] += count.n
        return dict(found)

    def forgotten(self) -> dict[str, int]:
        """Returns how many of the cancelled tasks of each kind were forgotten or purged."""
        found: Counter[str] = Counter()
        for count in self.letters:
            found[count.kind] += count.forgotten
        return dict(+found)

    def by(self, name: str) -> dict[str, dict[str, int]]:
        """Returns tasks by state for each ``queue`` or ``kind``."""
        found: dict[str, dict[str, int]] = {}
        for count in self.shown:
            row = found.get(key := getattr(count, name))
            if row is None:
                row = found[key] = dict.fromkeys(_STATES, 0)
            row[count.state.value] += count.n
        return dict(sorted(found.items()))

    def largest(self, name: str, most: int) -> dict[str, dict[str, int]]:
        """Returns the same of no more than so many, by name: those of which most is there."""
        found = self.by(name)
        if len(found) <= most:
            return found
        live = {key: sum(row[state.value] for state in LIVE) for key, row in found.items()}
        kept = set(sorted(found, key=lambda key: (-live[key], key))[:most])
        return {key: row for key, row in found.items() if key in kept}


@dataclass(slots=True)
class Page:
    tasks: list[Task]
    next_before: UUID | None = field(default=None)


async def show(store: Store, task_id: UUID, documents: int | None = None) -> Timeline:
    found = await store.timeline(task_id, documents=documents)
    if found is None:
        raise TaskNotFound(f"there is no task {task_id}", hint=NOT_KEPT)
    return found


def ended_by(found: Timeline) -> str:
    """Returns who ended a task, in words. A task that was asked to stop was cancelled by whoever asked, whether its
    worker did as it was told or was gone by then; any retry would have come after that in the audit log."""
    task, last = found.task, found.audit[-1] if found.audit else None
    if task.state is State.CANCELLED and last is not None and last.action == "TASK_CANCEL_REQUEST":
        why = f" ({last.reason})" if last.reason else ""
        return f"as {last.actor} asked{why}" + (f"; it was held by {task.worker_id}" if task.worker_id else "")
    return f"by {task.worker_id}" if task.worker_id else ""


def attempts_text(found: Timeline) -> str:
    """Returns how many attempts a task has had, of how many. One that ended with its worker's death is not the task's
    doing, and allows another: then there are more than it was given."""
    task = found.task
    lost = [one for one in found.attempts if one.replay == task.replay_count and one.reason in LOST]
    if not lost:
        return f"{task.attempt_count} of {task.max_attempts}"
    lost_told = "one whose worker is lost does not count, and allows another"
    return f"{task.attempt_count}, of {task.max_attempts} at most: {lost_told}"


def cancelled_because(found: Timeline) -> str | None:
    """Returns why a task was cancelled, in the words of whoever asked for it, if there are any."""
    asked = [row.reason for row in found.audit if row.action == "TASK_CANCEL_REQUEST" and row.reason]
    return asked[-1] if asked and found.task.state is State.CANCELLED else found.task.error_message


async def list_tasks(store: Store, query: Query) -> Page:
    """Returns one page, newest first, by the state that tasks are shown with; ``next_before`` continues it."""
    if not 1 <= query.limit <= 1000:
        raise InvalidInput(f"limit must be from 1 to 1000, not {query.limit}")
    found = await find_with_pauses(store, query) if query.documents is None else await _paged(store, query)
    more = len(found) == query.limit
    return Page(found, found[-1].id if found and more else None)


async def _paged(store: Store, query: Query) -> list[Task]:
    async def fetch(number: int, documents: int, last: Task | None) -> list[Task]:
        before = query.before if last is None else last.id
        return await find_with_pauses(store, replace(query, limit=number, documents=documents, before=before))

    return await in_pieces(query.limit, fetch)


async def stats(store: Store) -> Stats:
    """Returns exact totals."""
    overview = await store.overview()
    return Stats(
        await store.counts(),
        overview,
        await store.letter_counts(),
        await store.leases(),
        await strays(store, overview),
    )


async def known_queues(store: Store, declared: Sequence[str] = ()) -> set[str]:
    """Returns queues that hold or held tasks, that a worker serves, that are paused, or that the application names."""
    return queues_of(await store.counts(), await store.overview(), declared)


def queues_of(counts: Sequence[Count], overview: Overview, declared: Sequence[str] = ()) -> set[str]:
    """The same, of what was read before."""
    served = {queue for worker in overview.workers for queue in worker.queues}
    return {count.queue for count in counts} | served | _holds_on(overview, "queue") | set(declared)


def queues_in_use(counts: Sequence[Count], overview: Overview) -> set[str]:
    """Returns queues that have or had tasks, or are paused."""
    return {count.queue for count in counts} | _holds_on(overview, "queue")


def kinds_in_use(counts: Sequence[Count], overview: Overview) -> set[str]:
    """Returns kinds that have or had tasks, limits or pauses."""
    limited = {row.kind for row in overview.limits if row.limited}
    return {count.kind for count in counts} | limited | _holds_on(overview, "kind")


async def known_kinds(store: Store, declared: Sequence[str] = ()) -> set[str]:
    """Returns kinds that have or had tasks, limits or pauses, or that the application names."""
    return kinds_of(await store.counts(), await store.overview(), declared)


def kinds_of(counts: Sequence[Count], overview: Overview, declared: Sequence[str] = ()) -> set[str]:
    """The same, of what was read before."""
    limited = {limit.kind for limit in overview.limits}
    return {count.kind for count in counts} | limited | _holds_on(overview, "kind") | set(declared)


async def check_queue(store: Store, name: str, declared: Sequence[str] = ()) -> None:
    known = await known_queues(store, declared)
    if name not in known:
        listed = ", ".join(sorted(known)) or "none yet"
        raise UnknownQueue(f"nothing is known of a queue {name[:100]!r}", hint=f"known queues: {listed}")


async def check_kind(store: Store, name: str, declared: Sequence[str] = ()) -> None:
    known = await known_kinds(store, declared)
    if name not in known:
        listed = ", ".join(sorted(known)) or "none yet"
        raise UnknownKind(f"nothing is known of a kind {name[:100]!r}", hint=f"known kinds: {listed}")


def _holds_on(overview: Overview, target: str) -> set[str]:
    return {hold.name for hold in overview.holds if hold.target == target}


def parse_states(values: Sequence[str]) -> tuple[State, ...]:
    """Returns the states that these words name; those of the earlier system are understood, too."""
    words = [value.strip().lower() for value in values]
    try:
        return tuple(EARLIER_STATES.get(word) or State(word) for word in words)
    except ValueError:
        wanted = ", ".join(state.value for state in State)
        raise InvalidInput(f"{', '.join(values)!r} is not a state", hint=f"states are: {wanted}") from None


def parse_id(value: str, what: str = "a task") -> UUID:
    """Returns an id that was written; one that is none is refused, by what it should name."""
    try:
        return UUID(value)
    except ValueError:
        raise InvalidInput(
            f"{value!r} is not {what} id", hint="an id looks like 0197f0c2-8d1e-7c3a-9b1f-2f6f0c9d1a2b"
        ) from None


async def resolve_ids(store: Store, values: Sequence[str]) -> list[UUID]:
    """Returns the ids of tasks that are named by them or by their beginnings, each once."""
    return list(dict.fromkeys([await _resolve_id(store, value) for value in values]))


async def known(store: Store, values: Sequence[str]) -> list[str]:
    """Returns those ids, or beginnings of ids, by which a task is known."""
    found = []
    for value in values:
        try:
            task_id = await _resolve_id(store, value)
        except TaskNotFound:
            continue
        except InvalidInput:  # it names several here, or is no id: whoever asks for it is told
            found.append(value)
            continue
        if task_id in await store.get_many([task_id], documents=0):
            found.append(value)
    return found


async def beginning_with(store: Store, digits: str, limit: int) -> list[UUID]:
    """Returns the latest tasks whose ids begin with these digits, without dashes."""
    # Pages go down by id, through an index: those that begin so are the first ones below the next that do not.
    beyond = UUID(int=min(int(digits.ljust(WHOLE_ID, "f"), 16) + 1, 2**128 - 1))
    found = await store.find(Query(before=beyond, limit=limit, brief=True))
    return [task.id for task in found if task.id.hex.startswith(digits)]


async def _resolve_id(store: Store, value: str) -> UUID:
    digits = value.replace("-", "").lower()
    if not set(digits) <= set("0123456789abcdef") or len(digits) >= WHOLE_ID or not digits:
        return parse_id(value)
    if len(digits) < SHORTEST_ID:
        raise InvalidInput(
            f"{value!r} is too little of an id", hint=f"give at least {SHORTEST_ID} characters, or all of it"
        )
    same = await beginning_with(store, digits, MOST_MEANT + 1)
    if not same:
        raise TaskNotFound(f"there is no task whose id begins with {value}", hint=NOT_KEPT)
    if len(same) > 1:
        listed = ", ".join(map(str, same[:MOST_MEANT])) + (", …" if len(same) > MOST_MEANT else "")
        raise InvalidInput(f"several tasks begin with {value}", hint=f"give more of the id: {listed}")
    return same[0]


def plain(value: Any) -> Any:
    """Returns datetimes and ids as text; everything JSON already knows as it is."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, State):
        return value.value
    if isinstance(value, JsonText):
        return readable(value)
    return None if value is CUT else value
