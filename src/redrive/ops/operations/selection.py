"""Which tasks a retry is about. Whoever retries, or looks beforehand what a retry would reach, asks here, by whatever
name: retry, replay, retry-failed of a batch, replay of a projection, dead letters.

By a filter these are the tasks that are failed now and match, and behind them those that are cancelled now and whose
last dead letter matches. A task that was cancelled and never failed has no dead letter, and is meant by its id only.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.audit import skip_reason
from redrive.kernel.failure_filter import FailedRef, FailureFilter
from redrive.kernel.operation import Action, Retry, moment
from redrive.kernel.ports.store import Store
from redrive.kernel.retry_guard import Withheld, by_feature
from redrive.kernel.task import State, Task, check_int
from redrive.ops import approvals
from redrive.ops.allowance import PlannedAction

ENDLESS = 2**62  # beyond every failure
MOST_RETRIED_AT_ONCE = 500  # in one transaction
RETRYABLE_STATES = (State.FAILED, State.CANCELLED)


@dataclass(slots=True, frozen=True)
class Matches:
    """A set with an end: ``failed`` tasks that failed no later than ``upto``, and ``cancelled`` ones by dead letters up
    to ``letters``, cancelled no later than ``until`` (0: whenever). Who gives a task up while a retry is under way
    means it."""

    which: FailureFilter
    upto: int
    failed: int
    letters: int = 0
    cancelled: int = 0
    until: int = 0
    more: bool = False  # are failed than were counted

    @property
    def total(self) -> int:
        return self.failed + self.cancelled

    async def next(self, store: Store, limit: int, after: int = 0) -> list[FailedRef]:
        """Returns the next tasks behind the place ``after``, the ones that failed first. Each has its place as
        ``failed_seq``; those that are meant as cancelled have theirs beyond ``upto``."""
        found = await store.failed_ids(self.which, limit=limit, after=after, upto=self.upto)
        if found or not self.letters:
            return found
        place = max(after - self.upto, 0)
        while behind := await store.failed_ids(self.which, limit=limit, after=place, upto=self.letters, cancelled=True):
            if meant := [one for one in behind if self._given_up_in_time(one)]:
                return [FailedRef(one.id, self.upto + (one.failed_seq or 0), one.error_fingerprint) for one in meant]
            place = _place(behind)
        return []

    async def first(self, store: Store, limit: int) -> list[FailedRef]:
        """Returns the first ``limit`` tasks, with their places."""
        found = list[FailedRef]()
        while len(found) < limit and (more := await self.next(store, limit - len(found), _place(found))):
            found += more
        return found

    def _given_up_in_time(self, one: FailedRef) -> bool:
        return not self.until or one.failed_at is None or moment(one.failed_at) <= self.until

    def given_up(self, place: int) -> bool:
        """Returns whether the task at this place is meant as a cancelled one."""
        return place > self.upto

    def retry(self, plan: str | None = None) -> Retry:
        """Returns what an operation does that retries them."""
        return Retry(self.upto, 0, plan, self.letters, self.cancelled, self.until)


async def matching(
    store: Store, which: FailureFilter, *, cancelled: bool = True, endless: bool = False, most: int | None = None
) -> Matches:
    """Returns what matches now: what fails later is another matter. To know the end, all moves have to stop for a
    moment; ``endless`` does without, and takes what fails meanwhile along. ``most``: where rows have to be counted, no
    more are."""
    limit = None if most is None else most + 1
    upto, failed = (
        (ENDLESS, await store.count_failed(which, limit)) if endless else await store.failed_end(which, limit)
    )
    more = bool(which.unsummed) and failed == limit
    failed -= more
    letters, given_up = await store.failed_end(which, cancelled=True) if cancelled else (0, 0)
    until = 0 if endless or not letters else moment(await store.now())
    return Matches(which, upto, failed, letters, given_up, until, more)


@dataclass(slots=True, frozen=True)
class Selection:
    """The tasks that a retry is about: the first ``number`` of what ``matches``, or, where they are named one by one,
    ``tasks``, each by the failure that is meant; ``excluded`` were named, too, and do not fit the other filters."""

    matches: Matches
    number: int
    tasks: Sequence[FailedRef] | None = None
    excluded: Mapping[UUID, str] = field(default_factory=dict)
    plan: str | None = None
    everything: bool = False  # it was planned as all there is, and not as so many

    @property
    def which(self) -> FailureFilter:
        return self.matches.which

    @property
    def cancelled(self) -> int:
        """How many of them are meant as cancelled: those come behind all that are failed."""
        if self.tasks is None:
            return max(self.number - self.matches.failed, 0)
        return sum(self.matches.given_up(one.failed_seq or 0) for one in self.tasks)

    async def pieces(self, store: Store) -> AsyncIterator[Sequence[FailedRef]]:
        """Returns the tasks, as many at a time as one transaction retries; at least once what is excluded."""
        if self.tasks is not None:
            if self.tasks or self.excluded:
                yield self.tasks
            return
        left, after = self.number, 0
        while left > 0 and (found := await self.matches.next(store, min(MOST_RETRIED_AT_ONCE, left), after)):
            left, after = left - len(found), found[-1].failed_seq or after
            yield found


def planned_retry(selections: Iterable[Selection]) -> PlannedAction:
    """Returns these as the action that is judged: by how many they are, unless they were planned as all there is."""
    listed = list(selections)
    everything = any(one.everything and one.number for one in listed)
    number = sum(one.number for one in listed)
    return PlannedAction(Action.RETRY, number, approvals.EVERYTHING_RETRIED if everything else None)


async def select(store: Store, which: FailureFilter, limit: int) -> Selection:
    """Selects at most ``limit`` tasks, those that failed first. Named ones are answered for one by one; and so are as
    many others as one transaction retries. Of more, only the end of their set is known."""
    if which.ids is not None:
        return await select_named(store, which, list(dict.fromkeys(which.ids))[:limit])
    if limit > MOST_RETRIED_AT_ONCE:
        found = await matching(store, which)
        return Selection(found, min(found.total, limit))
    found = await matching(store, which, endless=True, most=limit)
    tasks = await found.first(store, limit)
    return Selection(found, len(tasks), tasks)


async def select_named(store: Store, which: FailureFilter, ids: Sequence[UUID]) -> Selection:
    """Selects tasks by their ids, in whatever state they are: what cannot be retried is skipped. Other filters narrow
    the list, and what they leave out is skipped, too."""
    tasks, excluded = [FailedRef(task_id, None, None) for task_id in ids], dict[UUID, str]()
    if which != FailureFilter(ids=which.ids):
        found = await store.get_many(ids)
        excluded = {task_id: why for task_id in ids if (why := _unfit(found.get(task_id), which)) is not None}
        fit = [found[task_id] for task_id in ids if task_id not in excluded]
        tasks = [FailedRef(one.id, one.failed_seq if one.state is State.FAILED else None, None) for one in fit]
    return Selection(Matches(which, ENDLESS, len(tasks)), len(tasks), tasks, excluded)


def _unfit(task: Task | None, which: FailureFilter) -> str | None:
    if task is None or task.state not in RETRYABLE_STATES:
        return skip_reason(None if task is None else task.state.value)
    return which.unlike(task)


def check_at_once(which: FailureFilter, limit: int | None, default: int) -> int:
    """Returns how many tasks one call retries at most; refuses more than one transaction takes."""
    if limit is not None:
        return check_int(limit, "limit", 1, MOST_RETRIED_AT_ONCE)
    wanted = default if which.ids is None else len(set(which.ids))
    if wanted > MOST_RETRIED_AT_ONCE:
        raise InvalidInput(
            f"{wanted} tasks are more than the {MOST_RETRIED_AT_ONCE} of one call",
            hint="retry them in several calls, or as a bulk operation",
        )
    return wanted


# -- tasks that a retry leaves alone ---------------------------------------------------------------------------------


async def withheld(store: Store, tasks: Iterable[Task]) -> dict[UUID, Withheld]:
    """Returns those of these tasks that their feature lets nobody retry, as of now: one statement for each feature."""
    known = [(task.id, task.feature, task.facts or {}) for task in tasks]
    found: dict[UUID, Withheld] = {}
    for feature, asked in by_feature(store.features.guards, known).items():
        guard = store.features.guards[feature]
        found |= guard.withheld(await store.sql.feature_rows(feature, guard.statement, json.dumps(asked)))
    return found


async def withheld_of(store: Store, ids: Sequence[UUID]) -> dict[UUID, Withheld]:
    """Returns the same of tasks by their ids."""
    if not store.features.guards or not ids:
        return {}
    statuses = await store.statuses(ids)
    guarded = [one.id for one in statuses.values() if one.feature in store.features.guards]
    return await withheld(store, (await store.get_many(guarded, documents=0)).values()) if guarded else {}


async def would_reach(
    store: Store, selection: Selection, possible: tuple[State, ...] = RETRYABLE_STATES
) -> tuple[list[UUID], dict[UUID, str]]:
    """Returns which tasks of those that are named would be retried, as of now, and why not the others. ``possible``:
    the states from which something else is done to them."""
    would, skipped = list[UUID](), dict(selection.excluded)
    tasks = selection.tasks or ()
    found = await store.statuses([one.id for one in tasks])
    for one in tasks:
        task = found.get(one.id)
        given_up = selection.matches.given_up(one.failed_seq or 0)
        states, seen = ((State.CANCELLED,), None) if given_up else (possible, one.failed_seq)
        if task is not None and task.state in states and seen in (None, task.failed_seq):
            would.append(one.id)
        else:
            skipped[one.id] = skip_reason(None if task is None else task.state.value, " or ".join(possible))
    if possible != RETRYABLE_STATES:
        return would, skipped
    guarded = await withheld_of(store, would)
    return [task_id for task_id in would if task_id not in guarded], {**skipped, **guarded}


def _place(found: list[FailedRef]) -> int:
    return (found[-1].failed_seq or 0) if found else 0
