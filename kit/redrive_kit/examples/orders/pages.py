"""The pages of orders in the console, and what the page of a parcel's task says about its order."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Response

from redrive.feature import Operator, Role, Task
from redrive.feature.console import FeaturePages, Item, Panel, Section, ThePage, pages_router, render
from redrive_kit.examples.orders.service import Orders

router = pages_router("orders")


@router.get("")
async def all_orders(page: ThePage) -> Response:
    return await page.render("orders/list.html", orders=await page.operator.of(Orders).list())


@router.get("/pay-in")
async def pay_in_form(page: ThePage) -> Response:
    page.operator.insist(Role.OPERATOR)
    return await page.render("orders/pay_in.html")


@router.get("/{order}")
async def one_order(page: ThePage, order: str) -> Response:
    return await page.render("orders/order.html", order=await page.operator.of(Orders).show(order))


async def panel(operator: Operator, task: Task) -> Panel | None:
    """Returns to which order a parcel belongs, and how far that is; of one that was erased nobody knows."""
    if not task.facts:
        return None
    order = await operator.of(Orders).show(task.facts["order"])
    return Panel("Order", "orders/panel.html", {"order": order})


async def unfinished(operator: Operator) -> int:
    return sum(one.ended < one.parcels for one in await operator.of(Orders).list())


async def sample(operator: Operator) -> Mapping[str, str]:
    return {"#orders": render("orders/table.html", operator, orders=await operator.of(Orders).list())}


pages = FeaturePages(
    router,
    Section(
        "Shop",
        (
            Item("Orders", "/orders", "How far each order is", badge="orders", key="x"),
            Item("Pay in", "/orders/pay-in", "Give a customer money to spend", role=Role.OPERATOR),
        ),
    ),
    panel,
    {"orders": lambda _: sample},
    unfinished,
    services={"orders": Orders},
)
