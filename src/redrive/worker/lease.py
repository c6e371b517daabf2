"""Keeps leases and deadlines of what runs here: renews in time, stops what is overdue, abandons what will not stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from redrive.errors import RedriveError
from redrive.kernel.outcome import StopReason
from redrive.kernel.ports.store import Store
from redrive.settings import Settings
from redrive.worker.run import Run, RunState
from redrive.worker.state import WorkerState

PROGRESS_EVERY_S = 1.0
STOP_GRACE_S = 5.0
LONGEST_LOOK_INTERVAL_S = 1.0


class LeaseKeeper:
    """Watches all runs of a worker in one coroutine, which is cheaper than a timer for each. Calls ``on_lost`` for a
    run whose lease somebody else has, ``on_stuck`` for one that was told to stop and did not."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        state: WorkerState,
        *,
        on_lost: Callable[[Run], None],
        on_stuck: Callable[[Run], None],
        on_grace_over: Callable[[], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._runs = state.runs
        self._outage = state.outage
        self._next_look = state.next_look
        self._on_lost = on_lost
        self._on_stuck = on_stuck
        self._on_grace_over = on_grace_over
        self._progress_at = 0.0
        self._grace_ends: float | None = None
        self._grace_said = False
        self._renewing: asyncio.Task[None] | None = None
        self._in_doubt = False

    def doubt(self) -> None:
        """Asks the store now which leases are still held: others had taken this worker for dead."""
        self._in_doubt = True
        self._next_look.now()

    def begin_grace(self) -> None:
        if self._grace_ends is not None:
            return
        self._grace_ends = time.monotonic() + self._settings.grace_ms / 1000
        self._next_look.now()

    async def run(self) -> None:
        try:
            while True:
                now = time.monotonic()
                self._enforce(now)
                # Beside this loop, not in it: a heartbeat that hangs on a dead wire must not hold up deadlines.
                if self._renewing is None or self._renewing.done():
                    self._renewing = asyncio.create_task(self._renew(now), name="redrive-renew")
                    await asyncio.sleep(0)
                else:
                    self._stop_unsure(now)
                await self._next_look.wait(self._latest_look(time.monotonic()))
        finally:
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.gather(self._renewing, return_exceptions=True)

    def _enforce(self, now: float) -> None:
        if self._grace_ends is not None and now >= self._grace_ends and not self._grace_said:
            self._grace_said = True  # before anything is stopped: what was stopped is no longer there to be counted
            self._on_grace_over()
        for run in self._runs.everything():
            if not run.awaited:
                continue
            if run.stop is None:
                if run.deadline is not None and now >= run.deadline:
                    run.ask_to_stop(StopReason.TIMEOUT)
                elif self._grace_ends is not None and now >= self._grace_ends:
                    run.ask_to_stop(StopReason.SHUTDOWN)
            elif now - run.stopped_at >= STOP_GRACE_S:
                self._on_stuck(run)

    async def _renew(self, now: float) -> None:
        heartbeat = self._settings.heartbeat
        runs = self._runs.values()
        due = [run for run in runs if now - run.renewed_at >= heartbeat or self._in_doubt]
        due = [run for run in due if run.state is not RunState.ABANDONED]
        noted: list[Run] = []
        if now - self._progress_at >= PROGRESS_EVERY_S:
            noted = [run for run in runs if run.progress is not None and not run.settled]
        if not due and not noted:
            # Nothing left to renew: whatever failed before does not matter any more.
            self._outage.forget("lease")
            return
        self._progress_at = now
        renewed = {run.task.id: run for run in (*due, *noted)}
        progress = {run.task.id: run.progress for run in noted if run.progress is not None}
        for run in noted:
            run.progress = None
        try:
            lost = await self._store.renew(
                [(run.task.id, run.task.token) for run in renewed.values()], self._settings.lease, progress
            )
        except RedriveError as error:
            self._failed(error, noted, progress)
            return
        self._outage.over("lease")
        self._in_doubt = False
        for task_id, run in renewed.items():
            if task_id in lost:
                self._on_lost(run)
            else:
                run.renewed_at = now

    def _failed(self, error: RedriveError, noted: list[Run], progress: dict[UUID, str]) -> None:
        """Handles a renewal without an answer: keeps the progress, and stops what can no longer be sure of its
        lease."""
        self._outage.begin(error, "lease")
        for run in noted:
            if run.progress is None:
                run.progress = progress[run.task.id]
        self._stop_unsure(time.monotonic())

    def _stop_unsure(self, now: float) -> None:
        """Stops runs that have outlived their lease while the store does not answer: they may already run elsewhere."""
        for run in self._runs.values():
            if now - run.renewed_at >= self._settings.lease:
                run.ask_to_stop(StopReason.STORE_UNREACHABLE)

    def _latest_look(self, now: float) -> float:
        soonest = now + LONGEST_LOOK_INTERVAL_S
        for run in (*self._runs.values(), *self._runs.trailing.values()):
            if run.deadline is not None and run.stop is None and run.deadline < soonest:
                soonest = run.deadline
        if self._grace_ends is not None:
            soonest = min(soonest, max(self._grace_ends, now + 0.05))
        return soonest
