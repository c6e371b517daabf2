"""Ticks: tells the store what this worker does and has counted, promotes what is due, takes duties, hears of
cancellations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Mapping

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.outcome import StopReason
from redrive.kernel.ports.store import Heartbeat, Store, TickResult
from redrive.kernel.series import TallySheet
from redrive.version import __version__
from redrive.worker import forks
from redrive.worker.config import WorkerConfig, build_of
from redrive.worker.duties import DutyRunner
from redrive.worker.handler_notes import HandlerNotes
from redrive.worker.memory import Memory
from redrive.worker.report import Tallies
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")


SHORTEST_TICK_INTERVAL_S = 0.005


class Ticker:
    """Ticks at the worker's interval, and earlier when something is known to be due."""

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        state: WorkerState,
        tallies: Tallies,
        duties: DutyRunner,
        notes: HandlerNotes,
    ) -> None:
        self._config = config
        self._interval = config.settings.interval
        self._store = store
        self._lifecycle = state.lifecycle
        self._runs = state.runs
        self._health = state.health
        self._outage = state.outage
        self._signal = state.signal
        self._hints = state.hints
        self._tallies = tallies
        self._duties = duties
        self._notes = notes
        self._build = build_of(config.settings, config.registry)
        self._build_is_known = False
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
        tick = await self._send()
        self._take(tick)
        return tick.promoted > 0 or self._duties.busy

    async def leave(self) -> None:
        """Sends the last tick: others see that this worker stopped on purpose, that it takes no duties any more, and
        everything that it has counted."""
        await self._duties.cancel()
        await self._notes.leave()
        while True:
            await self._send(last=True)
            if self._tallies.sheet(now=True) is None:
                return

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
        self._due_at = time.monotonic() + self._interval
        try:
            tick = await self._send()
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

    # -- what a tick says ------------------------------------------------------------------------------------------

    async def _send(self, *, last: bool = False) -> TickResult:
        """Sends a heartbeat: how much runs at this moment, which duties the worker would take, and what it has counted
        since the one before."""
        self._health.running = len(self._runs)
        sheet = self._tallies.sheet(now=last)
        try:
            tick = await self._store.tick(self._heartbeat({} if last else self._duties.intervals, sheet))
        except (StoreUnavailable, StoreUnusable):
            raise
        except RedriveError:
            self._tallies.sent(sheet)  # being seen alive matters more, whatever it was that was refused
            raise
        self._tallies.sent(sheet)
        await self._note_build()
        return tick

    async def _note_build(self) -> None:
        """Tells the store once, when it knows this worker, which build of the application it runs."""
        if self._build_is_known:
            return
        with contextlib.suppress(RedriveError):  # the next tick says it
            # Also where there is none: another process may have had this name.
            await self._store.note_build(self._config.id, self._build)
            self._build_is_known = True

    def _heartbeat(self, duties: Mapping[str, float], sheet: TallySheet | None) -> Heartbeat:
        config = self._config
        return Heartbeat(
            config.id,
            socket.gethostname(),
            os.getpid(),
            config.options.queues,
            config.options.concurrency,
            len(self._runs),
            __version__,
            duties,
            self._lifecycle.stopping,
            self._interval,
            self._duties.while_records,
            sheet,
        )
