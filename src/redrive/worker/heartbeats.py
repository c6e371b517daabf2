"""Sends the heartbeats of a worker: what it tells the store about itself with each tick."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Mapping

from redrive.errors import RedriveError, StoreUnavailable, StoreUnusable
from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import Heartbeat, Store, TickResult
from redrive.kernel.series import TallySheet
from redrive.version import __version__
from redrive.worker.config import WorkerConfig, build_of
from redrive.worker.state import WorkerState
from redrive.worker.tallies import Tallies


class Heartbeats:
    """Sends heartbeats that say how much runs at that moment, which duties the worker would take, and what it has
    counted since the last one."""

    def __init__(
        self, config: WorkerConfig, store: Store, state: WorkerState, duties: Collection[Duty], tallies: Tallies
    ) -> None:
        self.interval = config.settings.interval
        self._worker_id = config.id
        self._options = config.options
        self._store = store
        self._life = state.life
        self._runs = state.runs
        self._health = state.health
        self._tallies = tallies
        self._build = build_of(config.settings, config.registry)
        self._build_is_known = False
        self._intervals = {duty.name: duty.every for duty in duties if duty.every is not None}
        self._while_records = {duty.name: duty.while_record for duty in duties if duty.while_record is not None}

    async def send(self) -> TickResult:
        return await self._send(self._intervals, self._tallies.sheet())

    async def send_last(self) -> None:
        """Tells the store that this worker leaves, takes no duties any more, and everything that it has counted."""
        while True:
            await self._send({}, self._tallies.sheet(now=True))
            if self._tallies.sheet(now=True) is None:
                return

    async def _send(self, duties: Mapping[str, float], sheet: TallySheet | None) -> TickResult:
        self._health.running = len(self._runs)
        try:
            tick = await self._store.tick(self._heartbeat(duties, sheet))
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
        with contextlib.suppress(RedriveError):  # the next beat tells it
            # Also where there is none: another process may have had this name.
            await self._store.note_build(self._worker_id, self._build)
            self._build_is_known = True

    def _heartbeat(self, duties: Mapping[str, float], sheet: TallySheet | None) -> Heartbeat:
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
            self.interval,
            self._while_records,
            sheet,
        )
