"""Takes fewer tasks while this process cannot begin handlers: no thread, no process, no file is to be had any more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from redrive.worker.run import Run
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
GROW_EVERY_S = 5.0
CALM_AFTER_S = 60.0
HINT = "raise the limits of its container (processes, memory, open files), or lower --concurrency"


class Room:
    """Withholds slots of a worker from the moment on that a handler could not be begun, and gives them back little by
    little. What runs keeps its slot: so as many run as there is room for. Without it, the worker that can do nothing
    would be the quickest of the fleet to take the next tasks."""

    def __init__(self, worker_id: str, state: WorkerState, started: Callable[[], int]) -> None:
        self._worker_id = worker_id
        self._runs = state.runs
        self._health = state.health
        self._signal = state.signal
        # How many threads and processes were started: one more than before is the proof that there is room.
        self._started = started
        self._started_before = 0
        self._timer: asyncio.TimerHandle | None = None
        self._paused_until = 0.0
        self._pause = FIRST_PAUSE_S
        self._next = 1
        self._last = 0.0

    def missing(self, run: Run, why: str) -> None:
        """Notes that a handler could not be begun; its slot, and all free ones, are withheld."""
        self._runs.withhold(run)
        now = self._last = time.monotonic()
        self._started_before = self._started()
        if now < self._paused_until:  # another one of the same claim
            return
        if self._health.cramped is None:
            self._pause = FIRST_PAUSE_S
            text = "no handler can be begun here (%s): taking fewer tasks, and handing back what was not begun → %s"
            logger.error(text, why, HINT, extra={"event": "worker.no_room", "worker_id": self._worker_id})
        else:
            self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
        self._health.cramped = why
        self._next = 1
        self._paused_until = now + self._pause
        self._plan(self._pause)

    def _plan(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._give_back)

    def _give_back(self) -> None:
        """Gives some slots back, more each time for as long as nothing is missing."""
        self._timer = None
        self._runs.give_back(self._next)
        self._next *= 2
        proven = self._started() > self._started_before or time.monotonic() - self._last >= CALM_AFTER_S
        if self._runs.withheld or not proven:
            self._plan(GROW_EVERY_S)
        else:
            self._health.cramped = None
            logger.info(
                "handlers can be begun again", extra={"event": "worker.room_again", "worker_id": self._worker_id}
            )
        self._signal.look()
