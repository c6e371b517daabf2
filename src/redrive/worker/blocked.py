"""Settles apart what somebody's open transaction holds up, while the hot loop goes on with all others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from redrive.kernel.machine import Transition
from redrive.worker.run import Run
from redrive.worker.state import WorkerState

logger = logging.getLogger("redrive.worker")

Settlements = list[tuple[Run, Transition]]
# What a settlement may have to wait for: the join at which it arrives, and whatever its feature writes.
Line = tuple[UUID | None, str | None]
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
MOST_AT_ONCE = 500
# With so many finished and not settled, a worker claims no more.
MOST_BLOCKED = 2000


class Blocked:
    """The settlements that wait. Their leases are renewed as those of all runs are: nobody else gets the tasks.

    ``settle`` brings some of them in; False when something of theirs is still blocked. They are given up ``patience``
    seconds after the worker was told to end."""

    def __init__(
        self,
        state: WorkerState,
        settle: Callable[[Settlements], Awaitable[bool]],
        patience: float,
    ) -> None:
        self._lifecycle = state.lifecycle
        self._runs = state.runs
        self._signal = state.signal
        self._settle = settle
        self._outage = state.outage
        self._patience = patience
        self._lines: dict[Line, Settlements] = {}
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    @property
    def full(self) -> bool:
        return bool(self._lines) and len(self) >= MOST_BLOCKED

    def put_aside(self, settlements: Settlements) -> Settlements:
        """Takes those that may have been what the others waited for; returns the others."""
        free: Settlements = []
        for run, transition in settlements:
            line = _line_of(run, transition)
            if line is None:
                free.append((run, transition))
            else:
                if line not in self._lines:
                    _tell(run)
                self._lines.setdefault(line, []).append((run, transition))
        self.go_on()
        return free

    def divert(self, settlements: Settlements) -> Settlements:
        """Takes those that would wait for the same as one that waits already; returns the others."""
        if not self._lines:
            return settlements
        free: Settlements = []
        for run, transition in settlements:
            line = _line_of(run, transition)
            if line in self._lines:
                self._lines[line].append((run, transition))
            else:
                free.append((run, transition))
        return free

    def go_on(self) -> None:
        """Sees to it that somebody tries."""
        if self._lines and (self._task is None or self._task.done()):
            self._task = self._lifecycle.loop.create_task(self._try_all(), name="redrive-blocked")

    async def close(self) -> None:
        """Tries no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._task])

    async def _try_all(self) -> None:
        pause, size = FIRST_PAUSE_S, MOST_AT_ONCE
        while self._lines:
            landed = False
            for line in list(self._lines):
                done = await self._try(line, size)
                landed = landed or done
            if landed:
                pause, size = FIRST_PAUSE_S, min(size * 2, MOST_AT_ONCE)
                self._signal.wake()
                continue
            if self._over():
                return
            size = max(size // 2, 1)  # one of a feature's tasks may hold up the others of it
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _try(self, line: Line, size: int) -> bool:
        # They stay in their line meanwhile, so that what comes after them waits there as well.
        part = self._lines[line][:size]
        landed = await self._settle(part)
        rest = self._lines[line][len(part) :]
        self._lines[line] = rest if landed else rest + part
        if not self._lines[line]:
            del self._lines[line]
        return landed

    def _over(self) -> bool:
        """Gives up what is left when the worker is to end and has waited long enough."""
        if not self._lifecycle.stopping or time.monotonic() - self._lifecycle.stopped_at <= self._patience:
            return False
        self._outage.give_up(len(self), "an open transaction holds what they need")
        for run, _ in [one for line in self._lines.values() for one in line]:
            self._runs.drop(run)
        self._lines.clear()
        self._signal.wake()
        return True


def _tell(run: Run) -> None:
    logger.warning(
        "task %s cannot be settled now: somebody's open transaction holds its join, or what its feature writes; its "
        "lease is kept, and it is tried again",
        run.task.id,
        extra={"event": "task.blocked", "task_id": str(run.task.id)},
    )


def _line_of(run: Run, transition: Transition) -> Line | None:
    line = (run.task.join, transition.feature)
    return None if line == (None, None) else line
