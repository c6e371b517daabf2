"""Orders: placed and shown. What a caller may do is checked here, for every face."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from redrive.feature import (
    App,
    Audit,
    Commit,
    InvalidInput,
    NewJoin,
    NotFound,
    Posting,
    Role,
    Rows,
    Service,
    check_name,
    new_id,
)
from redrive_kit.examples.orders.handlers import deliver, done
from redrive_kit.examples.orders.reaction import held


class OrderUnknown(NotFound):
    """By its base it is answered as 404 over HTTP."""

    code = "ORDERS_ORDER_UNKNOWN"


class Orders(Service):
    async def pay_in(self, customer: str, amount: int, once: str | None = None) -> None:
        """Give a customer money to spend; asked again with the same ``once``, not a second time."""
        who = self._session.may(Role.OPERATOR)
        check_name(customer, "customer")
        if amount <= 0:
            raise InvalidInput("what is paid in is more than 0")
        entries = (("system:bank", -amount), (f"customer:{customer}", amount))
        said = Audit(who, "ORDERS_PAID_IN", target=f"customer:{customer}", scope=customer, after={"amount": amount})
        posting = Posting(f"pay-in:{once or new_id()}", entries, "paid in")
        await self._store.apply(
            Commit(postings=[posting], conclusion=lambda done: [] if posting.key in done.repeated else [said])
        )

    async def place(self, order: str, customer: str, addresses: Sequence[str], price: int) -> dict[str, Any]:
        """Take the money for all parcels, and enqueue them: all of it, or nothing."""
        who = self._session.may(Role.OPERATOR)
        await self._store.apply(placing(who, order, customer, addresses, price))
        return await self.show(order)

    async def list(self) -> builtins.list[dict[str, Any]]:
        """The latest orders, and how many of their parcels have ended."""
        self._session.may(Role.VIEWER)
        return await self._store.sql.feature_rows("orders", "orders")

    async def show(self, order: str) -> dict[str, Any]:
        """How many parcels of an order are in which state, and what money is still held for it."""
        self._session.may(Role.VIEWER)
        rows = await self._store.sql.feature_rows("orders", "order_states", order)
        if not rows:
            raise OrderUnknown(f"there is no order {order!r}", hint="redrive orders list names the latest")
        states = {row["state"]: row["n"] for row in rows}
        return {"order": order, "parcels": states, "held": await self._store.sql.balance(held(order))}


def placing(who: str, order: str, customer: str, addresses: Sequence[str], price: int) -> Commit:
    """Returns all that belongs to a new order; it is applied as a whole, or not at all."""
    check_name(order, "order")
    check_name(customer, "customer")
    if not addresses or price <= 0:
        raise InvalidInput("an order has at least one address, and a price above 0")
    join = NewJoin(new_id(), on_complete=done.new(order=order))
    parcel = deliver.options(scope=customer, join=join.id, feature="orders", facts={"order": order, "price": price})
    parcels = [parcel.new(address=address) for address in addresses]
    total = price * len(parcels)
    shared = {"order": order, "customer": customer, "join": str(join.id)}
    return Commit(
        joins=[join],
        enqueues=parcels,
        postings=[Posting(f"order:{order}", ((f"customer:{customer}", -total), (held(order), total)), "placed")],
        rows=[Rows("orders", "parcels_placed", tuple({"task": str(each.id), **shared} for each in parcels))],
        audits=[Audit(who, "ORDERS_PLACED", target=f"order:{order}", scope=customer)],
    )


class Shop:
    """``app.orders``: what the application itself does with orders."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def place(
        self, order: str, customer: str, addresses: Sequence[str], price: int, *, connection: Any = None
    ) -> None:
        """Place an order; with ``connection``, in the caller's own transaction."""
        await self._app.apply(placing("app", order, customer, addresses, price), connection=connection)
