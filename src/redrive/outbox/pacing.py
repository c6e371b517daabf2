"""Paces writes: how large requests are, and when the next one may be sent. Pure: it is told how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from redrive.kernel.backoff import Backoff

GROWTH = 1.5
QUICK = 0.5  # a request that takes less than this share of the longest time may be larger next time


@dataclass(slots=True)
class Pace:
    """The size of requests to one sink. It shrinks when one was too large or took too long, and grows back while they
    are quick."""

    most_events: int
    most_bytes: int
    longest_s: float
    events: int = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.events, self.bytes = self.most_events, self.most_bytes

    def took(self, events: int, seconds: float) -> None:
        """Counts a request that got through."""
        if seconds > self.longest_s:
            self.events = max(1, min(self.events, events) // 2)
        elif seconds < self.longest_s * QUICK:
            self.events = min(self.most_events, int(self.events * GROWTH) + 1)
            self.bytes = min(self.most_bytes, int(self.bytes * GROWTH))

    def was_too_large(self, events: int, size: int) -> None:
        """Counts a request that was refused for its size: the next ones have at most half of it."""
        self.events = max(1, min(self.events, events) // 2)
        self.bytes = max(1, min(self.bytes, size) // 2)

    def cut(self, sizes: Sequence[int]) -> int:
        """Returns how many of the next events, of so many bytes each, go into one request: one at least."""
        total = 0
        for n, size in enumerate(sizes[: self.events]):
            total += size
            if total > self.bytes and n:
                return n
        return min(self.events, len(sizes))


@dataclass(slots=True)
class Brake:
    """Keeps a worker from asking a sink again and again that is down, however many events wait: after a request that
    failed as a whole the next one waits as an event would, longer each time."""

    backoff: Backoff
    failures: int = 0
    until: float = 0.0

    def failed(self, now: float, jitter: float) -> None:
        """Counts a request that failed as a whole, at a time of a steady clock. Those that were under way with it say
        nothing new."""
        if now >= self.until:
            self.failures += 1
            self.until = now + self.backoff.delay(self.failures, jitter)

    def succeeded(self) -> None:
        """Counts a request that was answered."""
        self.failures, self.until = 0, 0.0

    def wait(self, now: float) -> float:
        """Returns the seconds until the next request may be sent."""
        return max(0.0, self.until - now)
