"""Tracks a worker's life from start to end, and fits it into somebody else's program."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any


class Life:
    """Holds how far a worker's life has come; its parts ask before they begin something, or wait on it."""

    def __init__(self) -> None:
        # The store was reached, or cannot be for now. One that cannot be used is an error before this.
        self.begun = asyncio.Event()
        # The store has answered a claim, and what came is begun.
        self.claiming = asyncio.Event()
        self.on_begun: Callable[[], None] = lambda: None
        # What it died of; None while it lives, and when it ended as it should.
        self.died: Exception | None = None
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

    def begin(self) -> None:
        """Notes that the worker has begun, once."""
        if not self.begun.is_set():
            self.begun.set()
            self.on_begun()

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
    """Runs a worker beside the block of an ``async with``; calls ``on_death`` with what it dies of meanwhile."""

    def __init__(
        self,
        run: Coroutine[Any, Any, None],
        stop: Callable[[str], None],
        begun: Callable[[], Coroutine[Any, Any, object]],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._stop = stop
        self._begun = begun
        self._on_death = on_death
        self._task = asyncio.create_task(run, name="redrive-background")

    async def begin(self) -> None:
        """Starts the worker and waits for its first contact with the store, so that an unusable store is raised here.
        For one that cannot be reached, the worker waits in the background."""
        begun = asyncio.create_task(self._begun(), name="redrive-begun")
        try:
            await asyncio.wait([begun, self._task], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.end()
            raise
        finally:
            begun.cancel()
        if self._task.done():
            self._task.result()
        self._task.add_done_callback(self._ended)

    async def end(self) -> None:
        """Stops the worker and waits until everything that ran has ended or was handed back; raises what the worker
        died of."""
        self._stop("the block is left")
        await self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_death(error)
