"""The beat: tell the store that this worker lives, promote what is due, take duties, hear of cancellations."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from typing import TYPE_CHECKING

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.outcome import StopReason
from redrive.kernel.store import Heartbeat, TickResult
from redrive.version import __version__
from redrive.worker.maintenance import perform
from redrive.worker.memory import Memory

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.worker")
SOONEST = 0.005


class Beater:
    """Ticks at the worker's interval, and earlier when something is known to be due."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._due_at = 0.0
        self._expected = float("inf")
        self._earlier = asyncio.Event()
        self._duties: dict[str, asyncio.Task[None]] = {}
        self._memory = Memory()

    def due_in(self, seconds: float) -> None:
        """Something will be due: tick then, if no tick is planned before."""
        at = time.monotonic() + seconds
        self._expected = min(self._expected, at)
        if at < self._due_at:
            self._due_at = at
            self._earlier.set()

    async def run(self) -> None:
        while True:
            await self._beat()
            self._memory.tidy()
            await self._rest()

    async def beat_now(self) -> bool:
        """Tick, and begin what is due; answers whether something to claim may come of it."""
        tick = await self._worker.store.tick(self._message(self._worker.duties))
        self._take(tick)
        return tick.promoted > 0 or self.busy

    @property
    def busy(self) -> bool:
        """Duties are under way: recovery, schedules and bulk operations bring tasks."""
        return any(not duty.done() for duty in self._duties.values())

    async def leave(self) -> None:
        """The last beat: others see that this worker stopped on purpose."""
        for duty in self._duties.values():
            duty.cancel()
        await asyncio.gather(*self._duties.values(), return_exceptions=True)
        self._worker.health.running = len(self._worker.runs)
        await self._worker.store.tick(self._message({}))

    async def _rest(self) -> None:
        """Until the planned time, or an earlier one that becomes known meanwhile."""
        while (left := self._due_at - time.monotonic()) > 0:
            self._earlier.clear()
            try:
                async with asyncio.timeout(left):
                    await self._earlier.wait()
            except TimeoutError:
                return
        # Even if everything is overdue, leave room for the work itself.
        await asyncio.sleep(SOONEST)

    async def _beat(self) -> None:
        worker = self._worker
        worker.health.running = len(worker.runs)
        self._due_at = time.monotonic() + worker.settings.interval
        try:
            tick = await worker.store.tick(self._message(worker.duties))
        except (StoreUnavailable, StoreUnusable) as error:
            self._due_at = time.monotonic() + max(worker.outage.begin(error, "beat"), 0.2)
            return
        except RedriveError as error:
            logger.error("the store refused the beat: %s", error, extra={"event": "worker.beat_refused"})
            self._due_at = time.monotonic() + 5
            return
        worker.outage.over("beat")
        self._take(tick)

    def _take(self, tick: TickResult) -> None:
        worker = self._worker
        # What was expected by now may also be a rate that opened, which promotes nothing.
        if tick.promoted or time.monotonic() >= self._expected:
            self._expected = float("inf")
            worker.look()
        if tick.next_due is not None:
            self.due_in(max(tick.next_due, SOONEST))
        for task_id in tick.cancels:
            run = worker.runs.get(task_id)
            if run is not None:
                run.ask_to_stop(StopReason.CANCELLED)
        for duty in tick.duties:
            self.begin(duty)

    def begin(self, duty: str) -> None:
        running = self._duties.get(duty)
        if running is None or running.done():
            self._duties[duty] = asyncio.create_task(perform(self._worker, duty), name=f"redrive-{duty}")
            if self._worker.options.stop_when_empty:
                self._duties[duty].add_done_callback(lambda _: self._worker.look())

    def _message(self, duties: dict[str, float]) -> Heartbeat:
        worker = self._worker
        return Heartbeat(
            worker.id, socket.gethostname(), os.getpid(), worker.options.queues, worker.options.concurrency,
            len(worker.runs), __version__, duties, worker.stopping, worker.settings.interval, worker.while_records,
        )  # fmt: skip
