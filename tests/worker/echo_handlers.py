"""Handlers that say what they were called with; one of them in a process of its own, which imports this."""

from __future__ import annotations

from datetime import datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from redrive import Bulk, Context
from tests.payloads import Address, Colour, Line, Order, Point

# What a test sends, by the parameter that takes it; all other types are in unit/test_payloads.py.
FIELDS: dict[str, Any] = {
    "text": str,
    "when": datetime,
    "id": UUID,
    "price": Decimal,
    "colour": Colour,
    "blob": bytes,
    "point": Point,
    "line": Line,
    "order": Order,
}


def echo(
    ctx: Context,
    *,
    text: str = "",
    when: datetime | None = None,
    id: UUID | None = None,
    price: Decimal | None = None,
    colour: Colour | None = None,
    blob: bytes = b"",
    point: Point | None = None,
    line: Line | None = None,
    order: Order | None = None,
    untyped: Any = None,
) -> str:
    return said({name: value for name, value in locals().items() if name != "ctx"})


async def echo_on_loop(ctx: Context, payload: dict[str, Any]) -> str:
    return said(payload)


def echo_model(ctx: Context, order: Order) -> str:
    return said(order)


def echo_bulk(items: Bulk) -> list[str]:
    return [said(item.payload) for item in items]


def said(value: Any) -> str:
    """A value with its types, as text: sets and offsets of times look the same wherever they come from."""
    match value:
        case datetime() | time():
            return f"{type(value).__name__} {value.isoformat()}"
        case set():
            return f"set {sorted(map(said, value))}"
        case dict():
            return f"dict {sorted((said(key), said(part)) for key, part in value.items())}"
        case list() | tuple():
            return f"{type(value).__name__} {list(map(said, value))}"
        case Line() | Order() | Address():
            return f"{type(value).__name__} {said(vars(value))}"
    return f"{type(value).__name__} {value!r}"
