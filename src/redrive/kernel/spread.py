"""How values are spread: counts by bucket and their sum, which add up; and how long a store's calls take, by that."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from redrive.kernel.series import BOUNDS


class Spread:
    """Counts values by the buckets between ``bounds``; one more, the last, has no end."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS, counts: Sequence[int] | None = None, total: float = 0.0):
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1) if counts is None else list(counts)
        self.total = total

    def note(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def plus(self, more: Spread) -> Spread:
        """Returns both together."""
        counts = [mine + theirs for mine, theirs in zip(self.counts, more.counts, strict=True)]
        return Spread(self.bounds, counts, self.total + more.total)


class Meter:
    """How long the calls of each verb took, and how many ended with which error."""

    def __init__(self) -> None:
        self.calls: dict[str, Spread] = {}
        self.errors: dict[str, int] = {}

    def took(self, verb: str, seconds: float) -> None:
        found = self.calls.get(verb)
        if found is None:
            found = self.calls[verb] = Spread()
        # As ``Spread.note`` does it, without a call more: every statement comes by here.
        found.counts[bisect_left(found.bounds, seconds)] += 1
        found.total += seconds

    def failed(self, code: str) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1
