"""The tasks that a retry by filter is about: those that are failed now and match, and behind them those that are
cancelled now and whose last dead letter matches. Preview, plan, retry, replay and bulk operation all ask here. A task
that was cancelled and never failed has no dead letter, and is meant by its id only."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.kernel.failed import FailedRef, FailureFilter
from redrive.kernel.operation import moment
from redrive.kernel.ports.store import Store

ENDLESS = 2**62  # beyond every failure


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


def _place(found: list[FailedRef]) -> int:
    return (found[-1].failed_seq or 0) if found else 0
