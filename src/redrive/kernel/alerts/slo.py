"""Service levels: so many of a queue's tasks start in time, and how fast the rest uses up what is allowed to be late.

A start is good when the task had waited for no longer than the objective says, else it is bad. A task that is still
waiting beyond it is bad already: else a standstill, in which nothing starts, would look well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from redrive.kernel.figures import MOST_COUNTED
from redrive.kernel.series import BOUNDS
from redrive.kernel.wording import at_least

WINDOWS = {
    "5m": timedelta(minutes=5),
    "30m": timedelta(minutes=30),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
}
# How many times as fast as allowed the budget goes, over a long and a short window, before somebody is woken: at that
# speed 2 % of a month's budget is gone within an hour, and 5 % within six.
FAST, SLOW = 14.4, 6.0
# The lowest at which a standstill burns faster than FAST: the whole of it is late, 1 / (1 - target) times as fast.
LEAST_TARGET = 0.94
LEAST_STARTS = 10  # in the long window; a share of fewer says nothing
# The short window of the slow rule: half an hour without its worst five minutes. A burst is the fast rule's, and over
# with it; what is late in more than one place goes on.
LASTING, BURST = "30m_lasting", timedelta(minutes=5)


@dataclass(slots=True, frozen=True)
class Objective:
    """A share ``target`` of a queue's tasks starts within ``wait_seconds``, over ``days``."""

    wait_seconds: float = 30.0
    target: float = 0.95
    days: int = 30

    def problems(self) -> Iterable[tuple[str, str]]:
        """Yields which field cannot be used, and why."""
        if self.wait_seconds not in BOUNDS:
            yield (
                "wait_seconds",
                f"it is one of {', '.join(f'{bound:g}' for bound in BOUNDS)}: by these starts are counted",
            )
        if not LEAST_TARGET <= self.target < 1:
            yield (
                "target",
                f"it is a share from {LEAST_TARGET:g} to below 1, not {self.target:g}: where more may be late, the"
                " error budget can never go so fast that somebody is told; rather make wait_seconds longer",
            )
        if not 1 <= self.days <= 365:
            yield "days", f"it is from 1 to 365, not {self.days}"

    @property
    def told(self) -> str:
        return f"{self.target * 100:g} % of its tasks start within {self.wait_seconds:g} s, over {self.days} days"

    @property
    def allowed(self) -> float:
        """The share that may be late."""
        return 1 - self.target

    def split(self, wait: Iterable[int]) -> tuple[int, int]:
        """Returns how many starts were good and how many bad, of buckets by ``BOUNDS``."""
        counts = list(wait)
        good = sum(counts[: BOUNDS.index(self.wait_seconds) + 1])
        return good, sum(counts) - good


Start = tuple[datetime, tuple[int, int]]  # good and bad ones, by when their step begins
Starts = Iterable[Start]


@dataclass(slots=True, frozen=True)
class ServiceLevel:
    """How a queue stands. ``burn``: by window, how many times as fast as allowed tasks are late; ``overdue``: those
    that wait beyond the objective now, and are among the bad ones."""

    objective: Objective
    good: int = 0
    bad: int = 0
    overdue: int = 0
    burn: Mapping[str, float] = field(default_factory=dict)
    at: datetime | None = None

    @property
    def waiting(self) -> str:
        """How many wait beyond the objective, as people say it: they are counted up to a bound."""
        return at_least(self.overdue, MOST_COUNTED)

    @property
    def share(self) -> float:
        """The share that started in time; 1 where nothing started and nothing waits."""
        return self.good / (self.good + self.bad) if self.good + self.bad else 1.0

    @property
    def left(self) -> float:
        """The share of the error budget that is left; below 0 when more is late than allowed."""
        return 1 - (1 - self.share) / self.objective.allowed

    @property
    def fast(self) -> float:
        return min(self.burn.get("1h", 0.0), self.burn.get("5m", 0.0))

    @property
    def slow(self) -> float:
        return min(self.burn.get("6h", 0.0), self.burn.get(LASTING, 0.0))


def measure(
    objective: Objective, minutes: Starts, days: Starts, overdue: int, now: datetime, lasting: int = 0
) -> ServiceLevel:
    """Returns how a queue stands: by the minutes of the last six hours, and by days. ``lasting``: how many of the
    ``overdue`` have been so for longer than a burst."""
    recent, whole = list(minutes), _sum(days)
    waiting = (now, (0, overdue))  # what still waits is late now
    burn = {}
    for name, window in WINDOWS.items():
        within = [*(one for one in recent if one[0] >= now - window), waiting]
        # What waits for so long is late, however little is done in this queue.
        enough = lasting > 0 or sum(_sum(within)) >= LEAST_STARTS or name in ("5m", "30m")
        burn[name] = _rate(objective, within) if enough else 0.0
        if name == "30m":
            goes_on = [waiting] if lasting else []
            burn[LASTING] = _rate(objective, [*_without_worst(within, goes_on), *goes_on])
    return ServiceLevel(objective, whole[0], whole[1] + overdue, overdue, burn, now)


def _rate(objective: Objective, starts: Starts) -> float:
    """Returns how many times as fast as allowed these are late."""
    good, bad = _sum(starts)
    return round(bad / (good + bad) / objective.allowed, 2) if good + bad else 0.0


def _without_worst(found: Sequence[Start], kept: Sequence[Start]) -> list[Start]:
    """Returns starts without those of the five minutes in which most were late, and without those that are ``kept``
    in any case."""
    starts = [one for one in found if one not in kept]
    if not starts:
        return []

    def late_after(begin: datetime) -> int:
        return sum(bad for at, (_, bad) in starts if begin <= at < begin + BURST)

    worst = max((at for at, _ in starts), key=late_after)
    return [one for one in starts if not worst <= one[0] < worst + BURST]


def _sum(starts: Starts) -> tuple[int, int]:
    good = bad = 0
    for _, (more_good, more_bad) in starts:
        good, bad = good + more_good, bad + more_bad
    return good, bad
