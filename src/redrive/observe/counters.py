"""Counts what one worker process does: plain numbers for /healthz, /readyz and tests, and, beyond the time series, how
attempts ended and why, sizes of batches, lag of its loop."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from redrive.kernel.series import MOST_SERIES, OTHER, Spread

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


@dataclass(slots=True)
class Health:
    """Plain numbers, written by the worker and read by anyone in the process."""

    worker_id: str = ""
    started_at: float = 0.0
    last_contact: float = 0.0
    # Since when the hot loop's calls of the store go without an answer; 0 while they are answered.
    unanswered_since: float = 0.0
    store_error: str | None = None
    # Why no handler can be begun here; None while they can.
    cramped: str | None = None
    running: int = 0
    stopping: bool = False
    claimed: int = 0
    completed: int = 0
    requeued: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    refused: int = 0
    late: int = 0
    abandoned: int = 0
    loop_blocked: int = 0
    reconnects: int = 0
    recovered: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
