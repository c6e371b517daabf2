"""What somebody is told about orders without asking. ``orders_late`` follows from the findings of that name,
``orders_frozen`` from a number of its own."""

from __future__ import annotations

from redrive.feature import AlertRule, Level, Settings, Store
from redrive_kit.examples.orders.reaction import held
from redrive_kit.examples.orders.settings import OrderSettings


async def frozen(store: Store, settings: Settings) -> float:
    """Returns how much money the orders hold that are late, the first twenty of them."""
    rows = await store.sql.feature_rows("orders", "late", settings.of(OrderSettings).late_hours)
    return sum([await store.sql.balance(held(row["name"])) for row in rows])


def most_frozen(settings: Settings) -> float:
    return settings.of(OrderSettings).frozen_limit


ALERTS = (
    AlertRule("orders_late", "orders whose parcels do not move", hold=300, fix="redrive doctor names them"),
    AlertRule(
        "orders_frozen",
        "money of customers that is held by orders that do not move",
        frozen,
        threshold=most_frozen,
        level=Level.CRITICAL,
        fix="redrive orders show NAME; mend the cause and retry its parcels, or cancel them: that pays back",
    ),
)
