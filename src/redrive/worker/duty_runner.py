"""Performs duties beside the hot loop, and knows which are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import Store
from redrive.worker.config import WorkerConfig
from redrive.worker.maintenance import perform
from redrive.worker.state import WorkerState


class DutyRunner:
    """Performs the duties of one worker, each in a task of its own."""

    def __init__(self, config: WorkerConfig, store: Store, state: WorkerState, duties: Mapping[str, Duty]) -> None:
        self._worker_id = config.id
        self._look_after_each = config.options.stop_when_empty
        self._store = store
        self._stopping = state.life.is_stopping
        self._signal = state.signal
        self._duties = duties
        self._under_way: dict[str, asyncio.Task[None]] = {}
        # What duties had to do when they were last begun for it.
        self._tried: dict[str, object] = {}

    @property
    def busy(self) -> bool:
        """True while duties are under way: recovery, schedules and bulk operations bring tasks."""
        return any(not duty.done() for duty in self._under_way.values())

    def begin(self, name: str) -> None:
        """Begins a duty, unless it is under way."""
        running = self._under_way.get(name)
        if running is None or running.done():
            work = perform(self._duties[name], self._store, self._worker_id, self._stopping)
            self._under_way[name] = asyncio.create_task(work, name=f"redrive-{name}")
            if self._look_after_each:
                self._under_way[name].add_done_callback(lambda _: self._signal.look())

    async def begin_those_with_work(self) -> bool:
        """Begins duties that can bring tasks now, whoever had them last; returns whether there were any. What moved
        nothing the last time is left."""
        asked = {name: duty.has_work for name, duty in self._duties.items() if duty.has_work is not None}
        found = {name: await has_work(self._store, self._worker_id) for name, has_work in asked.items()}
        moving = [name for name, what in found.items() if what and what != self._tried.get(name)]
        self._tried = found
        for name in moving:
            self.begin(name)
        return bool(moving)

    async def cancel(self) -> None:
        """Cancels what is under way, and waits for its end."""
        for duty in self._under_way.values():
            duty.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
