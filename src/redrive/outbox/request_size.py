"""How large requests to a sink are: it adapts to what the sink takes. Pure: it is told how long they took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

GROWTH = 1.5
QUICK = 0.5  # a request that takes less than this share of the longest time may be larger next time


@dataclass(slots=True)
class RequestSize:
    """The size of requests to one sink. It shrinks when one was too large or took too long, and grows back while they
    are quick, but not to what was too large: the sink is not asked again, it has said so."""

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
        """Counts a request that was refused for its size: all others have at most half of it."""
        self.events = max(1, min(self.events, events) // 2)
        self.bytes = self.most_bytes = max(1, min(self.bytes, size) // 2)

    def cut(self, sizes: Sequence[int]) -> int:
        """Returns how many of the next events, of so many bytes each, go into one request: one at least."""
        total = 0
        for n, size in enumerate(sizes[: self.events]):
            total += size
            if total > self.bytes and n:
                return n
        return min(self.events, len(sizes))
