"""The kinds that the feature brings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.handlers.context import Context
from redrive.kernel.outcome import Fail

PARCEL, DONE = "ORDERS_PARCEL", "ORDERS_DONE"

if TYPE_CHECKING:
    from redrive.app import App


def declare(app: App) -> None:
    """Give an application the feature's handlers."""

    @app.task(PARCEL, max_attempts=3)
    async def deliver(ctx: Context, address: str) -> str:
        if address == "nowhere":
            raise Fail("ORDERS_NO_ADDRESS", "there is no such address")
        return f"delivered to {address}"

    @app.task(DONE, public=("order",))
    async def done(ctx: Context, order: str) -> str:
        """Enqueued once, when the last parcel of an order has ended."""
        return f"order {order} is done"
