"""Ticks: tells the store that this worker lives, promotes what is due, takes duties, hears of cancellations."""

from __future__ import annotations

import asyncio
import logging
import time

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.outcome import StopReason
from redrive.kernel.ports.store import TickResult
from redrive.worker import forks
from redrive.worker.duty_runner import DutyRunner
from redrive.worker.handler_notes import HandlerNotes
from redrive.worker.heartbeats import Heartbeats
from redrive.worker.memory import Memory
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")
SHORTEST_TICK_INTERVAL_S = 0.005


class Ticker:
    """Ticks at the worker's interval, and earlier when something is known to be due."""

    def __init__(self, state: WorkerState, heartbeats: Heartbeats, duties: DutyRunner, notes: HandlerNotes) -> None:
        self._runs = state.runs
        self._outage = state.outage
        self._signal = state.signal
        self._hints = state.hints
        self._heartbeats = heartbeats
        self._duties = duties
        self._notes = notes
        self._due_at = 0.0
        self._expected = float("inf")
        self._earlier = asyncio.Event()
        self._memory = Memory()

    def due_in(self, seconds: float) -> None:
        """Plans a tick for when something will be due, if none is planned before. The whole fleet does."""
        self._plan(time.monotonic() + seconds + self._hints.wait())

    def due_now(self) -> None:
        """Plans a tick for this moment."""
        self._plan(time.monotonic())

    def _plan(self, at: float) -> None:
        self._expected = min(self._expected, at)
        if at < self._due_at:
            self._due_at = at
            self._earlier.set()

    async def run(self) -> None:
        while True:
            await self._tick()
            self._memory.tidy()
            forks.reap()
            await self._rest()

    async def tick_now(self) -> bool:
        """Ticks, and begins what is due; returns whether something to claim may come of it."""
        tick = await self._heartbeats.send()
        self._take(tick)
        return tick.promoted > 0 or self._duties.busy

    async def leave(self) -> None:
        """Sends the last tick: others see that this worker stopped on purpose."""
        await self._duties.cancel()
        await self._notes.leave()
        await self._heartbeats.send_last()

    async def _rest(self) -> None:
        """Waits until the planned time, or an earlier one that becomes known meanwhile."""
        while (left := self._due_at - time.monotonic()) > 0:
            self._earlier.clear()
            try:
                async with asyncio.timeout(left):
                    await self._earlier.wait()
            except TimeoutError:
                return
        # Even if everything is overdue, leave room for the work itself.
        await asyncio.sleep(SHORTEST_TICK_INTERVAL_S)

    async def _tick(self) -> None:
        self._due_at = time.monotonic() + self._heartbeats.interval
        try:
            tick = await self._heartbeats.send()
        except (StoreUnavailable, StoreUnusable) as error:
            self._due_at = time.monotonic() + self._outage.begin(error, "beat")
            return
        except RedriveError as error:
            logger.error("the store refused the beat: %s", error, extra={"event": "worker.beat_refused"})
            self._due_at = time.monotonic() + 5
            return
        self._outage.over("beat")
        self._take(tick)
        await self._notes.write()

    def _take(self, tick: TickResult) -> None:
        expected = time.monotonic() >= self._expected
        if tick.promoted:
            self._signal.look()
        elif expected:  # by another worker, or a rate has opened, which promotes nothing
            self._hints.hear()
        if expected or tick.promoted:
            self._expected = float("inf")
        if tick.next_due is not None:
            self.due_in(max(tick.next_due, SHORTEST_TICK_INTERVAL_S))
        for task_id in tick.cancels:
            run = self._runs.get(task_id)
            if run is not None:
                run.ask_to_stop(StopReason.CANCELLED)
        for name in tick.duties:
            self._duties.begin(name)
