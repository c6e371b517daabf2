"""When the lease keeper looks at its runs again."""

from __future__ import annotations

import asyncio
import contextlib
import time

from redrive.worker.run import Run

SHORTEST_LOOK_INTERVAL_S = 0.02


class NextLook:
    """Holds when the lease keeper looks at its runs again; an earlier deadline moves it forward."""

    def __init__(self) -> None:
        self._at = 0.0
        self._changed = asyncio.Event()

    def watch(self, run: Run) -> None:
        """Makes sure that the next look is not after the deadline of a new run."""
        if run.deadline is not None and run.deadline < self._at:
            self._at = run.deadline
            self._changed.set()

    def began(self, run: Run) -> None:
        """Begins a run in its process: its time counts from now on."""
        run.begin()
        self.watch(run)

    def now(self) -> None:
        self._at = 0.0
        self._changed.set()

    async def wait(self, at: float) -> None:
        """Waits until this moment, or an earlier one that becomes known meanwhile."""
        self._at = at
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(at - time.monotonic(), SHORTEST_LOOK_INTERVAL_S)):
                await self._changed.wait()
