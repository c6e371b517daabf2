"""Holds back tasks that are suspected of killing their workers, until nothing else runs here.

Who was aboard when a worker died may have been the reason, or a neighbour of it. A task that has but one death left
runs alone: if its worker dies again, it was this one, and no other is condemned with it. One that no number of deaths
fails runs alone after two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from uuid import UUID

from redrive.errors import RedriveError
from redrive.kernel.outcome import StopReason
from redrive.kernel.ports.store import Store
from redrive.kernel.task import Claimed
from redrive.worker.config import WorkerConfig
from redrive.worker.run import Run, RunState
from redrive.worker.state import WorkerState

MANY = 1 << 20
SUSPECT_AFTER = 2  # deaths in a row, where no usual number of them is final


class Suspects:
    """The one suspect among the runs of a worker, which is begun when nothing else runs here. While there is one, the
    worker claims nothing. ``start`` begins it; ``end`` hands back one that is not begun."""

    def __init__(
        self,
        config: WorkerConfig,
        store: Store,
        state: WorkerState,
        *,
        start: Callable[[Run], None],
        end: Callable[[Run], None],
    ) -> None:
        self._max_deaths = config.settings.max_worker_deaths
        self._least = min(SUSPECT_AFTER, max(self._max_deaths - 1, 1))  # deaths that make any task a suspect
        self._registry = config.registry
        self._store = store
        self._lifecycle = state.lifecycle
        self._runs = state.runs
        self._signal = state.signal
        self._start = start
        self._end = end
        self._waits: Run | None = None
        self._running: Run | None = None
        # How many may be claimed at once: few while claims bring suspects, of which one is kept.
        self.claim_limit = MANY

    async def among(self, tasks: Sequence[Claimed]) -> frozenset[UUID]:
        """Returns those that another dead worker would make final. Only tasks with as many attempts behind them can be,
        so that most claims cost nothing."""
        old = [task for task in tasks if task.attempt > self._least and task.attempt > self._bound(task.kind) > 0]
        found: frozenset[UUID] = frozenset()
        if old:
            try:
                known = await self._store.statuses([task.id for task in old])
            except RedriveError:
                found = frozenset(task.id for task in old)  # to be alone harms nobody
            else:
                found = frozenset(
                    task.id for task in old if task.id in known and known[task.id].deaths >= self._bound(task.kind)
                )
        self.claim_limit = 1 if found else min(2 * self.claim_limit, MANY)
        return found

    def _bound(self, kind: str) -> int:
        """Returns after how many deaths in a row a task of this kind runs alone; 0: never, the first one fails it."""
        most = self._registry.max_deaths_of(kind, self._max_deaths)
        return SUSPECT_AFTER if most is None or most > self._max_deaths else most - 1

    def hold_back(self, run: Run) -> None:
        """Takes a suspect, to be begun when it is alone. Others are there to take care of a second one."""
        if self._runs.suspect:
            run.ask_to_stop(StopReason.SHUTDOWN)
            self._end(run)
            return
        run.deadline = None  # its time has not begun
        self._waits, self._runs.suspect = run, True

    async def start_if_alone(self) -> None:
        """Begins the suspect if nothing else runs here, or drops it if it was stopped before that."""
        if not self._runs.suspect:
            return
        if self._running is not None and not self._running.awaited:
            self._running = None
        run = self._waits
        if run is not None and (run.settled or run.stop is not None or self._lifecycle.stopping):
            self._waits = None
            run.ask_to_stop(StopReason.SHUTDOWN)
            self._end(run)
        elif run is not None and self._others(run):
            await self._note(run, waits=True)
        elif run is not None and await self._note(run, waits=False):
            self._waits, self._running = None, run
            self._begin(run)
        if self._waits is None and self._running is None:
            self._runs.suspect = False
            self._signal.look()  # for what was not claimed meanwhile

    def _others(self, run: Run) -> bool:
        """Returns whether the death of this worker would meet another task: one that runs, and one that has ended or
        is handed back, as long as the store has not heard of it."""
        others_run = any(other is not run for other in self._runs.values())
        return others_run or any(other.awaited for other in self._runs.everything() if other is not run)

    async def _note(self, run: Run, *, waits: bool) -> bool:
        """Tells the store that it waits, and that it does so no more, unless it was never told. False when the store
        does not answer."""
        if run.apart == waits:
            return True
        try:
            await self._store.mark_waiting([(run.task.id, run.task.token)], waits)
        except RedriveError:
            return False
        run.apart = waits
        return True

    def _begin(self, run: Run) -> None:
        now = time.monotonic()
        limit = run.start_limit if run.state is RunState.STARTING else run.timeout
        run.started, run.deadline = now, now + limit if limit else None
        self._start(run)
