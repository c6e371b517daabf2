"""Orders that take long: told by doctor, and once an hour by one worker of the fleet."""

from __future__ import annotations

import logging
from collections.abc import Callable

from redrive.feature import Duty, Finding, Level, Settings, Store
from redrive_kit.examples.orders.settings import OrderSettings

logger = logging.getLogger("redrive.orders")


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns a finding for each order that is late; its page in the console mends it."""
    rows = await store.sql.feature_rows("orders", "late", settings.of(OrderSettings).late_hours)
    return [
        Finding(
            Level.WARNING,
            "orders_late",
            f"order {row['name']} has {row['n']} parcels that do not move",
            f"redrive orders show {row['name']}",
            ("page", f"/orders/{row['name']}"),
        )
        for row in rows
    ]


def duties(settings: Settings) -> list[Duty]:
    async def remind(store: Store, worker: str, stopping: Callable[[], bool]) -> None:
        for finding in await examine(store, settings):
            logger.warning("%s", finding.text, extra={"event": "orders.late"})

    return [Duty("orders:remind", settings.of(OrderSettings).remind_minutes * 60, remind)]
