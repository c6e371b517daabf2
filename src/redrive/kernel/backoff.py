"""How many seconds to wait before the next attempt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Backoff:
    """Exponential, capped, with jitter: attempt n waits between half and all of ``base * 2**(n-1)`` seconds.

    Half is kept fixed so that a retry never lands immediately on a service that just failed; the other half
    is spread so that tasks that failed together do not come back together.
    """

    base: float = 2.0
    maximum: float = 60.0

    def delay(self, attempt: int, jitter: float) -> float:
        """Returns the seconds to wait. ``jitter`` is a random number in [0, 1), given by the caller so that this stays
        pure."""
        # The exponent is bounded so that attempt 10,000 does not overflow a float.
        full = min(self.maximum, self.base * 2.0 ** min(max(attempt, 1) - 1, 60))
        return full * (0.5 + 0.5 * jitter)

    def at_least(self, wish: float | None, attempt: int, jitter: float) -> float:
        """Returns the delay, or what a server asked for if that is longer, plus some jitter: the server asked the whole
        fleet for the same. A server cannot shorten the delay: one that says "now" would have all attempts used up at
        once."""
        usual = self.delay(attempt, jitter)
        if wish is None:
            return usual
        return max(usual, wish + jitter * min(self.maximum, max(self.base, wish * 0.1)))
