"""Tracks a worker's life from start to end, and fits it into somebody else's program."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger("redrive.worker")


class Life:
    """Holds how far a worker's life has come; its parts ask before they begin something, or wait on it."""

    def __init__(self) -> None:
        # The store was reached, or is known not to be.
        self.begun = asyncio.Event()
        # Claims no more, since this moment of the monotonic clock.
        self.stopping = False
        self.stopped_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    @property
    def started(self) -> bool:
        return self._loop is not None

    def is_stopping(self) -> bool:
        return self.stopping

    def is_cut_off(self) -> bool:
        """Returns whether everything is to end at once: after a second cancellation, or at the end of the event
        loop."""
        return self._task is not None and self._task.cancelling() > 0

    async def live(self, work: Coroutine[Any, Any, None], stop: Callable[[], None]) -> None:
        """Does the work in a task of its own until it ends; a cancellation calls ``stop``."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(work, name="redrive-worker")
        await see_through(self._task, stop)

    def retire(self) -> None:
        self.stopped_at = time.monotonic()
        self.stopping = True


async def see_through(life: asyncio.Task[None], stop: Callable[[], None]) -> None:
    """Waits for a worker's task to end. A cancellation asks it to stop, and is passed on when it has; a second one cuts
    it off. Further ones change nothing: handing back takes seconds at most, and not handing back a whole lease."""
    cancelled: asyncio.CancelledError | None = None
    while not life.done():
        try:
            await asyncio.wait([life])  # unlike `await life`, leaves it alone when this is cancelled
        except asyncio.CancelledError as error:
            if cancelled is None:
                stop()
            elif not life.cancelling():
                life.cancel()
            cancelled = error
    died = not life.cancelled() and life.exception() is not None
    if cancelled is not None and not died:
        raise cancelled
    life.result()


class Background:
    """Runs a worker beside the block of an ``async with``."""

    def __init__(
        self,
        worker_id: str,
        run: Coroutine[Any, Any, None],
        stop: Callable[[str], None],
        begun: Callable[[], Awaitable[object]],
    ) -> None:
        self._worker_id = worker_id
        self._stop = stop
        self._begun = begun
        self._task = asyncio.create_task(run, name="redrive-background")
        self._task.add_done_callback(self._ended)

    async def begin(self) -> None:
        """Starts the worker and waits for its first contact with the store, so that an unusable store is raised here.
        For one that cannot be reached, the worker waits in the background."""
        try:
            await self._begun()
        except asyncio.CancelledError:
            await self.end()
            raise
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        """Stops the worker and waits until everything that ran has ended or was handed back; raises what the worker
        died of."""
        self._stop("the block is left")
        await self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Logs what the worker died of: whoever runs it may look much later, or never."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error(
                "worker %s ended by an error: %s",
                self._worker_id,
                error,
                exc_info=error,
                extra={"event": "worker.died", "worker_id": self._worker_id},
            )
