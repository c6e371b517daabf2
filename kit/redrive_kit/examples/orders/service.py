"""Orders: placed and shown. What is declared here has its route, its command and its form by that."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from redrive.feature import (
    App,
    Audit,
    Commit,
    Given,
    InvalidInput,
    NewJoin,
    NotFound,
    Open,
    Posting,
    Rows,
    Service,
    action,
    check_name,
    look,
    new_id,
)
from redrive_kit.examples.orders.handlers import deliver, done
from redrive_kit.examples.orders.reaction import held


class OrderUnknown(NotFound):
    """By its base it is answered as 404 over HTTP."""

    code = "ORDERS_ORDER_UNKNOWN"


Order = Annotated[str, Given("The order.", metavar="ORDER", positional=True, check=partial(check_name, what="order"))]
Customer = Annotated[
    str, Given("Who pays.", metavar="CUSTOMER", positional=True, check=partial(check_name, what="customer"))
]
Once = Annotated[str | None, Given("Text of your own: asked again with the same, nothing is paid in twice.", once=True)]


@dataclass(slots=True, frozen=True)
class OrderLine:
    """An order in the list of the latest."""

    name: Annotated[str, Open(column="order")]
    parcels: Annotated[int, Open(column="parcels")]
    ended: Annotated[int, Open("How many of them have ended.", column="ended")]


@dataclass(slots=True, frozen=True)
class OrderView:
    """How far an order is."""

    order: Annotated[str, Open()]
    parcels: Annotated[dict[str, int], Open("How many are in which state.")]
    held: Annotated[int, Open("The money that is still held for it.")]


@dataclass(slots=True, frozen=True)
class PaidIn:
    customer: Annotated[str, Open()]
    amount: Annotated[int, Open()]


class Orders(Service):
    """Orders of several parcels: pay in, place, list, show."""

    @look("GET /api/orders", empty="no order yet: redrive orders place ORDER CUSTOMER ADDRESS")
    async def list(self) -> builtins.list[OrderLine]:
        """The latest orders, and how many of their parcels have ended."""
        return [OrderLine(**row) for row in await self._store.sql.feature_rows("orders", "orders")]

    @look("GET /api/orders/{order}")
    async def show(self, order: Order) -> OrderView:
        """How many parcels of an order are in which state, and what money is still held for it."""
        rows = await self._store.sql.feature_rows("orders", "order_states", order)
        if not rows:
            raise OrderUnknown(f"there is no order {order!r}", hint="redrive orders list names the latest")
        states = {row["state"]: row["n"] for row in rows}
        return OrderView(order, states, await self._store.sql.balance(held(order)))

    @action("POST /api/orders/pay-in", said="{customer} has {amount} more", page="/orders", creates=True)
    async def pay_in(
        self,
        customer: Customer,
        amount: Annotated[int, Given("More than 0.", metavar="AMOUNT", positional=True)],
        once: Once = None,
    ) -> PaidIn:
        """Give a customer money to spend."""
        if amount <= 0:
            raise InvalidInput("what is paid in is more than 0")
        entries = (("system:bank", -amount), (f"customer:{customer}", amount))
        note = Audit(
            self._who, "ORDERS_PAID_IN", target=f"customer:{customer}", scope=customer, after={"amount": amount}
        )
        posting = Posting(f"pay-in:{once or new_id()}", entries, "paid in")
        await self._store.apply(
            Commit(postings=[posting], conclusion=lambda done: [] if posting.key in done.repeated else [note])
        )
        return PaidIn(customer, amount)

    @action("POST /api/orders", said="order {done.order}: {done.parcels}, {done.held} held", status=201)
    async def place(
        self,
        order: Order,
        customer: Customer,
        addresses: Annotated[
            builtins.list[str], Given("One or more, a parcel for each.", metavar="ADDRESS", positional=True)
        ],
        price: Annotated[int, Given("Of each parcel.", metavar="N")] = 1,
    ) -> OrderView:
        """Place an order: take the money for all parcels, and enqueue them; all of it, or nothing."""
        await self._store.apply(placing(self._who, order, customer, addresses, price))
        return await self.show(order)


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
