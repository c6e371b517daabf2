"""Decides when a worker follows a hint that there is something to do."""

from __future__ import annotations

import asyncio
import random

from redrive.worker.loop_signal import LoopSignal

# So many misses are put down to chance; with each from then on the wait doubles. A find makes up for some: of five idle
# workers each misses four times for one find, and need not be patient yet.
EAGER_MISSES, MOST_MISSES, A_FIND = 3, 9, 4
FIRST_WAIT_S = 0.005
MOST_WAIT_S = FIRST_WAIT_S * 2 ** (MOST_MISSES - EAGER_MISSES)


class Hints:
    """Makes a worker look at once while hints are worth it. One that keeps finding nothing, because others of its fleet
    were there before it, waits for a random moment first and follows all hints until then with one look: otherwise each
    task would cost a claim by every idle worker, and a large fleet would keep the server busy with finding nothing."""

    def __init__(self, signal: LoopSignal) -> None:
        self._signal = signal
        self._misses = 0
        self._following = False
        self._planned: asyncio.TimerHandle | None = None

    def hear(self) -> None:
        """Takes a hint: the worker looks now or in a moment."""
        if self._planned is not None:
            return
        wait = self.wait()
        if not wait:
            self._follow()
        else:
            self._planned = asyncio.get_running_loop().call_later(wait, self._follow)

    def wait(self) -> float:
        """Returns the seconds for which to leave what is due to the rest of the fleet."""
        if self._misses < EAGER_MISSES:
            return 0.0
        longest = FIRST_WAIT_S * 2 ** (self._misses - EAGER_MISSES)
        return random.uniform(0, longest)  # noqa: S311 (so that a fleet is spread; no secret)

    def looked(self, found: bool) -> None:
        """Learns whether a look found something; only those that followed a hint tell whether hints are worth it."""
        if found:
            self._misses = max(self._misses - A_FIND, 0)
        elif self._following:
            self._misses = min(self._misses + 1, MOST_MISSES)
        self._following = False

    def _follow(self) -> None:
        self._planned = None
        self._following = True
        self._signal.look()
