"""``redrive orders``."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.feature.cli import AppName, By, Create, Json, Url, operate, output
from redrive_kit.examples.orders.service import Orders

cli = typer.Typer(help="Orders of several parcels: pay in, place, list, show.")
Order = Annotated[str, typer.Argument(metavar="ORDER")]
Customer = Annotated[str, typer.Argument(metavar="CUSTOMER")]
Price = Annotated[int, typer.Option("--price", metavar="N", help="Of each parcel.")]
Addresses = Annotated[list[str], typer.Argument(metavar="ADDRESS", help="One or more, a parcel for each.")]


@cli.command("pay-in")
def pay_in(
    customer: Customer,
    amount: Annotated[int, typer.Argument(metavar="AMOUNT")],
    by: By = None,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
) -> None:
    """Give a customer money to spend."""
    operate(url, app, lambda own: own.of(Orders).pay_in(customer, amount), by=by, create=create)
    output.say(f"{customer} has {amount} more")


@cli.command("place")
def place(
    order: Order,
    customer: Customer,
    addresses: Addresses,
    price: Price = 1,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Place an order."""
    _print(operate(url, app, lambda own: own.of(Orders).place(order, customer, addresses, price), by=by), json)


@cli.command("list")
def list_orders(url: Url = None, app: AppName = None, json: Json = False) -> None:
    """The latest orders."""
    found = operate(url, app, lambda own: own.of(Orders).list())
    if json:
        output.emit(found)
    for one in () if json else found:
        output.say(f"order {one['name']}: {one['ended']} of {one['parcels']} parcels have ended")


@cli.command("show")
def show(order: Order, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """How far an order is."""
    _print(operate(url, app, lambda own: own.of(Orders).show(order)), json)


def _print(found: dict[str, object], json: bool) -> None:
    if json:
        output.emit(found)
    else:
        output.say(f"order {found['order']}: {found['parcels']}, {found['held']} held")
