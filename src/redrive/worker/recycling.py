"""Ends a worker process that has done enough (by time, by tasks, by the memory that it holds), and has
the supervisor replace it.

The supervisor starts a successor first. So there is no moment with fewer processes at work than there should be, also
when the successor takes its time or cannot be started at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator, Callable

from redrive.settings import Options
from redrive.worker.memory import memory_in_use
from redrive.worker.state import WorkerState

LOOK_AT_MEMORY_EVERY_S = 1.0
MEGABYTE = 1 << 20


class ProcessLimits:
    """The limits of one worker process. ``spread``: it ends by up to that part earlier, by chance, so that processes
    which began together do not end together."""

    def __init__(self, options: Options, *, spread: float = 0.0) -> None:
        share = 1 - random.uniform(0, spread)  # noqa: S311 (nobody has to guess it)
        self._memory = options.max_memory
        self._time = float("inf") if options.max_time is None else options.max_time * share
        self._jobs = float("inf") if options.max_jobs is None else max(options.max_jobs * share, 1)
        self._ends = float("inf")
        self.next_look = float("inf")

    def begin(self) -> None:
        """Counts from now on."""
        self._ends = time.monotonic() + self._time
        self._plan()

    def reached(self, claimed: int = 0) -> str | None:
        """Returns which limit is reached, in words; None while none is."""
        self._plan()
        if time.monotonic() >= self._ends:
            return f"it has run for {self._time:.0f} s"
        if claimed >= self._jobs:
            return f"it has run {claimed} tasks"
        if self._memory is not None and (megabytes := memory_in_use() / MEGABYTE) > self._memory:
            return f"it holds {megabytes:.0f} MB of memory, more than {self._memory:g}"
        return None

    def _plan(self) -> None:
        now = time.monotonic()
        self.next_look = self._ends if self._memory is None else min(self._ends, now + LOOK_AT_MEMORY_EVERY_S)


CLAIMING, SPENT = "claiming", "spent"
DRAIN = b"drain\n"  # what the supervisor says
SPREAD = 0.2
LOOK_EVERY_S = 0.2
_LIMITS = ("max_time", "max_jobs", "max_memory")


def without_limits(options: Options) -> Options:
    """Returns the options of a worker that goes on until it is relieved."""
    return options.with_values(**dict.fromkeys(_LIMITS))


@contextlib.asynccontextmanager
async def supervised(state: WorkerState, options: Options, pipe: int) -> AsyncIterator[None]:
    """Tells the supervisor, within the block, how the worker is. ``options`` has its limits, ``pipe`` is where the
    supervisor listens."""
    os.set_inheritable(pipe, False)  # or a handler's own process would keep it open

    def tell(what: str) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, and its end is heard elsewhere
            os.write(pipe, what.encode() + b"\n")

    watching = asyncio.create_task(_watch(state, ProcessLimits(options, spread=SPREAD), tell), name="redrive-limits")
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        os.close(pipe)


async def _watch(state: WorkerState, limits: ProcessLimits, tell: Callable[[str], None]) -> None:
    await state.lifecycle.claiming.wait()
    tell(CLAIMING)
    limits.begin()
    while (why := limits.reached(state.runs.claimed)) is None:  # noqa: ASYNC110 (nobody tells of memory and time)
        await asyncio.sleep(LOOK_EVERY_S)
    tell(f"{SPENT} {why}")
