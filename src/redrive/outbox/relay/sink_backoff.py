"""When the next request to a sink may be sent that is down. Pure: it is told the time."""

from __future__ import annotations

from dataclasses import dataclass

from redrive.kernel.backoff import Backoff


@dataclass(slots=True)
class SinkBackoff:
    """Keeps a worker from asking a sink again and again that is down, however many events wait: after a request that
    failed as a whole the next one waits as an event would, longer each time."""

    backoff: Backoff
    failures: int = 0
    until: float = 0.0

    def failed(self, now: float, jitter: float, wish: float | None = None) -> None:
        """Counts a request that failed as a whole, at a time of a steady clock; ``wish``: seconds that the sink asks
        to be left alone. Those that were under way with it say nothing new."""
        if now >= self.until:
            self.failures += 1
            self.until = now + self.backoff.at_least(wish, self.failures, jitter)

    def succeeded(self) -> None:
        """Counts a request that was answered."""
        self.failures, self.until = 0, 0.0

    def wait(self, now: float) -> float:
        """Returns the seconds until the next request may be sent."""
        return max(0.0, self.until - now)
