"""A worker's life inside somebody else's program: cancelled with grace, or run beside the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.worker")


async def see_through(life: asyncio.Task[None], stop: Callable[[], None]) -> None:
    """Wait for a life to end. A cancellation asks it to stop, and is passed on when it has; a second one cuts it off.
    Further ones change nothing: handing back takes seconds at most, and not handing back a whole lease."""
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
    """A worker that runs beside the block of an ``async with``."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._task = asyncio.create_task(worker.run(), name="redrive-background")
        self._task.add_done_callback(self._ended)

    async def begin(self) -> None:
        """Until the first contact with the store: one that cannot be used is said here, where somebody hears it. For
        one that cannot be reached, the worker waits in the background."""
        try:
            await self._worker.begun.wait()
        except asyncio.CancelledError:
            await self.end()
            raise
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        """Until everything that ran has ended or was handed back. A worker that had died says of what."""
        self._worker.stop("the block is left")
        await self._task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Whoever runs it beside something else may look much later, or never."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            logger.error(
                "worker %s ended by an error: %s", self._worker.id, error, exc_info=error,
                extra={"event": "worker.died", "worker_id": self._worker.id},
            )  # fmt: skip
