"""What rules are judged by: facts about every queue and about the store, of one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from redrive.kernel.alerts.thresholds import Limits

SURGE_WINDOW, USUAL_WINDOW = timedelta(minutes=10), timedelta(hours=1)
SURGE_FACTOR = 3  # times as many failures as usual
SAMPLE_EVERY = timedelta(seconds=30)  # of how much is queued
Depths = Mapping[str, Sequence[tuple[datetime, int]]]  # by queue, the oldest first


@dataclass(slots=True, frozen=True)
class QueueFacts:
    """``queued`` and ``oldest`` (seconds) are of kinds that nobody has paused, and whose circuit is not open.
    ``failed``: by causes that nobody has muted or resolved; ``known``: by the others. ``overdue``: tasks that have
    waited for the queue's ``pending_age``. ``surged``: terminal failures of the last ten minutes, ``usual``: as many as
    in ten minutes of the hour before. ``before``: how many were queued when ``depth_for`` began, if it was too many all
    the time since. ``fast`` and ``slow``: how many times as fast as allowed its error budget goes, over an hour and
    over six.

    None has a default: a fact that nobody gathers would be a rule that never fires, and looks healthy."""

    queued: int
    oldest: float
    failed: int
    known: int
    overdue: int
    surged: int
    usual: float
    workers: int
    paused: bool
    before: int | None
    fast: float
    slow: float


@dataclass(slots=True, frozen=True)
class Answer:
    """What the query of an application's own rule answered: a number, nothing, or why there is no answer."""

    value: float | None = None
    fault: str | None = None
    at: datetime | None = None

    def with_time(self, at: datetime) -> Answer:
        return replace(self, at=at)


@dataclass(slots=True, frozen=True)
class Facts:
    """``expired``: leases that ran out. ``late``: schedules whose run is overdue. ``unsealed``: for how many seconds
    audit rows wait for their seal, where somebody is alive to do it. ``chain``: what is wrong with the chain of seals.
    ``horizon``: for how many seconds a transaction holds back the removal of dead rows. ``circuit``: for how many the
    one that is open the longest has been. No defaults here, either."""

    now: datetime
    queues: Mapping[str, QueueFacts]
    expired: int
    late: int
    unsealed: float
    chain: str | None
    horizon: float
    circuit: float


def remember(
    depths: Depths, queued: Mapping[str, int], limits: Limits, now: datetime
) -> dict[str, list[tuple[datetime, int]]]:
    """Returns how much was queued lately, with what is queued now: only of queues in which it is too much, and only
    since it has been."""
    found: dict[str, list[tuple[datetime, int]]] = {}
    for queue, n in queued.items():
        limit = limits.of(queue)
        if n <= limit.depth:
            continue
        window = timedelta(seconds=limit.depth_for)
        known = list(depths.get(queue, ()))
        if not known or now - known[-1][0] >= SAMPLE_EVERY:
            known.append((now, n))
        # One that is as old as the window stays: the window begins with it.
        while len(known) > 1 and now - known[1][0] >= window:
            known.pop(0)
        found[queue] = known
    return found


def depth_before(known: Sequence[tuple[datetime, int]], seconds: float, now: datetime) -> int | None:
    """Returns how much was queued that many seconds ago; None when it was not too much all the time since."""
    if not known or now - known[0][0] < timedelta(seconds=seconds):
        return None
    return known[0][1]
