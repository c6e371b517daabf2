"""The threads and processes that handlers run in."""

from __future__ import annotations

from collections.abc import Callable

from redrive.kernel.task import Claimed
from redrive.worker.processes import ProcessPool
from redrive.worker.threads import ThreadPool


class HandlerPools:
    """The threads and processes of one worker. ``on_progress`` hears what a handler in a process says."""

    def __init__(self, on_progress: Callable[[Claimed, str], None]) -> None:
        self.threads = ThreadPool()
        self.processes = ProcessPool(on_progress)

    def started(self) -> int:
        """Returns how many threads and processes were started for handlers."""
        return self.threads.started + self.processes.started

    def close(self) -> None:
        self.threads.close()
        self.processes.close()
