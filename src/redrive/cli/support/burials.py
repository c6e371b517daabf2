"""Has the tasks of a worker process that crashed taken back at once: whoever started it has seen it end."""

from __future__ import annotations

import asyncio
import logging
import socket

from redrive.app import Served
from redrive.errors import RedriveError
from redrive.kernel.ports.liveness import Process
from redrive.worker.machine import session_ends

logger = logging.getLogger("redrive.supervisor")
# As long as a supervisor waits for it before it starts the process again. Without it, others notice after a while.
PATIENCE_S = 3.0


class Burials:
    """Ends the leases of crashed children of a supervisor, by their names; others recover them."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def bury(self, name: str, pid: int) -> None:
        """Ends the leases of one child, when nothing of what its handlers had started is left."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                if not await session_ends(pid, PATIENCE_S):
                    return
                tasks = await self._served.bound().bury(name, Process(socket.gethostname(), pid))
        except (RedriveError, TimeoutError):
            return
        if tasks:
            logger.info(
                "%d tasks of %s go back",
                tasks,
                name,
                extra={"event": "worker.buried", "worker_id": name, "tasks": tasks},
            )
