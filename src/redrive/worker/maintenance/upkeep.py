"""The store's own housekeeping, in bounded pieces."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redrive.worker.worker import Worker

logger = logging.getLogger("redrive.maintenance")
FULL = 5000


async def upkeep(worker: Worker, duty: str) -> None:
    total = 0
    while (done := await worker.store.upkeep(duty, worker.retention)) > 0:
        total += done
        if done < FULL:
            break
        await asyncio.sleep(0.05)
    if total and duty in ("prune", "recount"):
        # Retention is never silent, and a corrected counter is worth knowing about.
        level = logging.INFO if duty == "prune" else logging.WARNING
        logger.log(
            level,
            "%s: %d rows",
            duty,
            total,
            extra={"event": f"maintenance.{duty}", "rows": total, "worker_id": worker.id},
        )
