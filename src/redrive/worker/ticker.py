"""Sends heartbeats: tells the store that this worker lives, promotes what is due, takes duties, hears of
cancellations."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.duty import Duty
from redrive.kernel.outcome import StopReason
from redrive.kernel.ports.store import Heartbeat, Store, TickResult
from redrive.kernel.series import TallySheet
from redrive.observe.health import Health
from redrive.settings import Options
from redrive.version import __version__
from redrive.worker.handler_notes import HandlerNotes
from redrive.worker.life import Life
from redrive.worker.maintenance import perform
from redrive.worker.memory import Memory
from redrive.worker.outage import Outage
from redrive.worker.runs import Runs
from redrive.worker.tallies import Tallies

logger = logging.getLogger("redrive.worker")
SHORTEST_TICK_INTERVAL_S = 0.005


class Ticker:
    """Ticks at the worker's interval, and earlier when something is known to be due. Calls ``look`` when there may be
    something to claim."""

    def __init__(
        self,
        worker_id: str,
        store: Store,
        options: Options,
        interval: float,
        *,
        life: Life,
        runs: Runs,
        health: Health,
        outage: Outage,
        duties: Mapping[str, Duty],
        tallies: Tallies,
        notes: HandlerNotes,
        look: Callable[[], None],
    ) -> None:
        self._worker_id = worker_id
        self._store = store
        self._options = options
        self._interval = interval
        self._life = life
        self._runs = runs
        self._health = health
        self._outage = outage
        self._duties = duties
        self._tallies = tallies
        self._notes = notes
        self._look = look
        self._intervals = {duty.name: duty.every for duty in duties.values() if duty.every is not None}
        self._while_records = {d.name: d.while_record for d in duties.values() if d.while_record is not None}
        self._due_at = 0.0
        self._expected = float("inf")
        self._earlier = asyncio.Event()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._memory = Memory()

    def due_in(self, seconds: float) -> None:
        """Plans a tick for when something will be due, if none is planned before."""
        at = time.monotonic() + seconds
        self._expected = min(self._expected, at)
        if at < self._due_at:
            self._due_at = at
            self._earlier.set()

    async def run(self) -> None:
        while True:
            await self._tick()
            self._memory.tidy()
            await self._rest()

    async def tick_now(self) -> bool:
        """Ticks, and begins what is due; returns whether something to claim may come of it."""
        tick = await self._beat(self._intervals)
        self._take(tick)
        return tick.promoted > 0 or self.busy

    @property
    def busy(self) -> bool:
        """True while duties are under way: recovery, schedules and bulk operations bring tasks."""
        return any(not duty.done() for duty in self._under_way.values())

    async def leave(self) -> None:
        """Sends the last tick: others see that this worker stopped on purpose."""
        for duty in self._under_way.values():
            duty.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        self._health.running = len(self._runs)
        await self._notes.leave()
        while True:
            await self._beat({}, last=True)
            if self._tallies.sheet(now=True) is None:
                return

    async def _beat(self, duties: Mapping[str, float], *, last: bool = False) -> TickResult:
        sheet = self._tallies.sheet(now=last)
        try:
            tick = await self._store.tick(self._message(duties, sheet))
        except (StoreUnavailable, StoreUnusable):
            raise
        except RedriveError:
            self._tallies.sent(sheet)  # being seen alive matters more, whatever it was that was refused
            raise
        self._tallies.sent(sheet)
        return tick

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
        self._health.running = len(self._runs)
        self._due_at = time.monotonic() + self._interval
        try:
            tick = await self._beat(self._intervals)
        except (StoreUnavailable, StoreUnusable) as error:
            self._due_at = time.monotonic() + max(self._outage.begin(error, "beat"), 0.2)
            return
        except RedriveError as error:
            logger.error("the store refused the beat: %s", error, extra={"event": "worker.beat_refused"})
            self._due_at = time.monotonic() + 5
            return
        self._outage.over("beat")
        self._take(tick)
        await self._notes.write()

    def _take(self, tick: TickResult) -> None:
        # What was expected by now may also be a rate that opened, which promotes nothing.
        if tick.promoted or time.monotonic() >= self._expected:
            self._expected = float("inf")
            self._look()
        if tick.next_due is not None:
            self.due_in(max(tick.next_due, SHORTEST_TICK_INTERVAL_S))
        for task_id in tick.cancels:
            run = self._runs.get(task_id)
            if run is not None:
                run.ask_to_stop(StopReason.CANCELLED)
        for name in tick.duties:
            self.begin(name)

    def begin(self, name: str) -> None:
        """Begins a duty, unless it is under way."""
        running = self._under_way.get(name)
        if running is None or running.done():
            work = perform(self._duties[name], self._store, self._worker_id, self._life.is_stopping)
            self._under_way[name] = asyncio.create_task(work, name=f"redrive-{name}")
            if self._options.stop_when_empty:
                self._under_way[name].add_done_callback(lambda _: self._look())

    def _message(self, duties: Mapping[str, float], sheet: TallySheet | None) -> Heartbeat:
        return Heartbeat(
            self._worker_id,
            socket.gethostname(),
            os.getpid(),
            self._options.queues,
            self._options.concurrency,
            len(self._runs),
            __version__,
            duties,
            self._life.stopping,
            self._interval,
            self._while_records,
            sheet,
        )
