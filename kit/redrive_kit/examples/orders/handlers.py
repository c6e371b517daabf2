"""The kinds that the feature brings."""

from __future__ import annotations

from redrive.feature import Context, Fail, Kinds
from redrive.feature.metrics import count
from redrive_kit.examples.orders.metrics import DELIVERED

kinds = Kinds()


@kinds.task("ORDERS_PARCEL", max_attempts=3)
async def deliver(ctx: Context, address: str) -> str:
    if address == "nowhere":
        raise Fail("ORDERS_NO_ADDRESS", "there is no such address")
    count(DELIVERED)
    return f"delivered to {address}"


@kinds.task("ORDERS_DONE", public=("order",))
async def done(ctx: Context, order: str) -> str:
    """Enqueued once, when the last parcel of an order has ended."""
    return f"order {order} is done"
