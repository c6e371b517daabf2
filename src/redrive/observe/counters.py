"""Counts what a worker does beyond the time series: how attempts ended and why, sizes of batches, lag of its loop."""

from __future__ import annotations

from redrive.kernel.series import MOST_SERIES, OTHER
from redrive.kernel.spread import Spread

MOST_REASONS = 50
MOST_ENDS = 5_000
BATCH_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0)
End = tuple[str, str, str, str]  # queue, kind, outcome, reason


class Ends(dict[End, int]):
    """Attempts by queue, kind, outcome and reason. Reasons and kinds are an application's own words: there are only so
    many of them, and then ``other``."""

    def __init__(self) -> None:
        super().__init__()
        self._reasons: set[str] = set()
        self._kinds: set[tuple[str, str]] = set()

    def count(self, queue: str, kind: str, outcome: str, reason: str = "") -> None:
        key = (queue, kind, outcome, reason)
        if key not in self:
            key = self._admit(queue, kind, outcome, reason)
        self[key] = self.get(key, 0) + 1

    def _admit(self, queue: str, kind: str, outcome: str, reason: str) -> End:
        if len(self) >= MOST_ENDS:
            return OTHER, OTHER, outcome, OTHER
        if (queue, kind) not in self._kinds and len(self._kinds) >= MOST_SERIES:
            queue, kind = OTHER, OTHER
        if reason not in self._reasons and len(self._reasons) >= MOST_REASONS:
            reason = OTHER
        self._kinds.add((queue, kind))
        self._reasons.add(reason)
        return queue, kind, outcome, reason


class Counters:
    """Written on the worker's loop, and read by whoever serves metrics."""

    def __init__(self) -> None:
        self.ends = Ends()
        self.batches = Spread(BATCH_BOUNDS)
        self.lags = Spread()
