"""Handlers that say what they were called with; one of them in a process of its own, which imports this."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any
from uuid import UUID

from redrive import Bulk, Context
from tests.payloads import Address, Box, Colour, Level, Line, Order, Patch, Point, Size

# Everything that a test sends, by the parameter that takes it.
FIELDS: dict[str, Any] = {
    "text": str,
    "number": int,
    "share": float,
    "flag": bool,
    "when": datetime,
    "day": date,
    "clock": time,
    "span": timedelta,
    "id": UUID,
    "price": Decimal,
    "colour": Colour,
    "size": Size,
    "level": Level,
    "path": Path,
    "blob": bytes,
    "host": IPv4Address,
    "point": Point,
    "line": Line,
    "address": Address,
    "order": Order,
    "box": Box[timedelta],
    "patch": Patch,
}


def echo(
    ctx: Context,
    *,
    text: str = "",
    number: int = 0,
    share: float = 0.0,
    flag: bool = False,
    when: datetime | None = None,
    day: date | None = None,
    clock: time | None = None,
    span: timedelta | None = None,
    id: UUID | None = None,
    price: Decimal | None = None,
    colour: Colour | None = None,
    size: Size | None = None,
    level: Level | None = None,
    path: Path | None = None,
    blob: bytes = b"",
    host: IPv4Address | None = None,
    point: Point | None = None,
    line: Line | None = None,
    address: Address | None = None,
    order: Order | None = None,
    box: Box[timedelta] | None = None,
    patch: Patch | None = None,
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
        case Line() | Order() | Address() | Box():
            return f"{type(value).__name__} {said(vars(value))}"
    return f"{type(value).__name__} {value!r}"
