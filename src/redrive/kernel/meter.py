"""What one store of one process was asked, and how it went."""

from __future__ import annotations

from bisect import bisect_left

from redrive.kernel.spread import Spread


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
