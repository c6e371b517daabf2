"""The child's side of recycling: it says when it claims and when it has had enough, and goes on until it is told to go.

The supervisor starts a successor first. So there is no moment with fewer processes at work than there should be, also
when the successor takes its time or cannot be started at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable

from redrive.settings import Options
from redrive.worker.lifespan import Lifespan
from redrive.worker.worker import Worker

CLAIMING, SPENT = "claiming", "spent"
DRAIN = b"drain\n"  # what the supervisor says
SPREAD = 0.2
LOOK_EVERY_S = 0.2
_LIMITS = ("max_time", "max_jobs", "max_memory")


def without_limits(options: Options) -> Options:
    """Returns the options of a worker that goes on until it is relieved."""
    return options.with_values(**dict.fromkeys(_LIMITS))


@contextlib.asynccontextmanager
async def relieved(worker: Worker, options: Options, pipe: int) -> AsyncIterator[None]:
    """Tells the supervisor, within the block, how the worker is. ``options`` has its limits, ``pipe`` is where the
    supervisor listens."""
    os.set_inheritable(pipe, False)  # or a handler's own process would keep it open

    def tell(what: str) -> None:
        with contextlib.suppress(OSError):  # the supervisor is gone, and its end is heard elsewhere
            os.write(pipe, what.encode() + b"\n")

    watching = asyncio.create_task(_watch(worker, Lifespan(options, spread=SPREAD), tell), name="redrive-relief")
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        os.close(pipe)


async def _watch(worker: Worker, lifespan: Lifespan, tell: Callable[[str], None]) -> None:
    await worker.life.claiming.wait()
    tell(CLAIMING)
    lifespan.begin()
    while (why := lifespan.over(worker.runs.claimed)) is None:  # noqa: ASYNC110 (nobody tells of memory and time)
        await asyncio.sleep(LOOK_EVERY_S)
    tell(f"{SPENT} {why}")
