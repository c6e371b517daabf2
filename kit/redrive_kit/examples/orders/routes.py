"""``/api/orders``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from redrive.feature.api import PROBLEMS, In, Out, TheOperator
from redrive_kit.examples.orders.service import Orders

router = APIRouter(prefix="/api/orders", tags=["orders"], responses=PROBLEMS)


class OrderIn(In):
    order: str
    customer: str
    addresses: list[str]
    price: int


class OrderOut(Out):
    order: str
    parcels: dict[str, int]
    held: int


@router.post("", status_code=201, response_model=OrderOut)
async def place_order(body: OrderIn, operator: TheOperator) -> dict[str, Any]:
    """Place an order: money and parcels, or neither."""
    return await operator.of(Orders).place(body.order, body.customer, body.addresses, body.price)


@router.get("/{order}", response_model=OrderOut)
async def show_order(order: str, operator: TheOperator) -> dict[str, Any]:
    """How far an order is."""
    return await operator.of(Orders).show(order)
