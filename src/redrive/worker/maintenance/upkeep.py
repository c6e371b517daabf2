"""Does the store's own housekeeping, in bounded pieces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from redrive.kernel.ports.store import Store
from redrive.kernel.retention import Retention

logger = logging.getLogger("redrive.maintenance")
ROWS_OF_A_FULL_PIECE = 5000


class Upkeep:
    """Does one kind of housekeeping, by the name that stores know. ``level``: the log level of what it did, if any."""

    def __init__(self, name: str, retention: Retention, level: int | None = None) -> None:
        self._name = name
        self._retention = retention
        self._level = level

    async def run(self, store: Store, worker_id: str, stopping: Callable[[], bool]) -> None:
        total = 0
        while (done := await store.upkeep(self._name, self._retention)) > 0:
            total += done
            if done < ROWS_OF_A_FULL_PIECE:
                break
            await asyncio.sleep(0.05)
        if total and self._level is not None:
            logger.log(
                self._level,
                "%s: %d rows",
                self._name,
                total,
                extra={"event": f"maintenance.{self._name}", "rows": total, "worker_id": worker_id},
            )
