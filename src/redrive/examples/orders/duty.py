"""Reminds of orders that take long. Done by one worker of the fleet, now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable

from redrive.kernel.duty import Duty
from redrive.kernel.ports.store import Store

logger = logging.getLogger("redrive.orders")


async def remind(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
    for row in await store.feature_rows("orders", "unfinished"):
        logger.info(
            "order %s has %d parcels to go", row["name"], row["n"], extra={"event": "orders.open", "order": row["name"]}
        )


REMIND = Duty("orders:remind", 3600.0, remind)
