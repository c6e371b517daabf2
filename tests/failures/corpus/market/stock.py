"""Stock, deliveries and imports of the market."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from tests.failures.corpus.market import texts

CATALOGUE = json.loads((Path(__file__).parent / "catalogue.json").read_text())
SUPPLIERS = {one["id"]: one for one in CATALOGUE["suppliers"]}
WAREHOUSES = ["warehouse-eu", "warehouse-us", "main hall", "Cold Store 2", "overflow"]
CARRIERS = {"dhl": "DHL Express", "gls": "GLS", "post": "Swiss Post", "own": "own fleet"}
REQUIRED = ("vat_id", "ship_to", "postal code", "country", "e-mail")
COUNTRIES = list(
    csv.DictReader(
        io.StringIO("code,name\nDE,Germany\nUS,United States\nGB,United Kingdom\nNZ,New Zealand\nCI,Côte d'Ivoire\n")
    )
)
HOLIDAYS = {"2026-12-25": "Christmas Day", "2026-01-01": "New Year", "2026-05-01": "Labour Day"}


def order(number: int) -> None:
    texts.not_found("order", number)


def customer(number: int) -> None:
    texts.not_found("customer", number)


def load(number: int, known: bool, address: str) -> None:
    """One job looks up several things through the same helper."""
    if not known:
        texts.not_found("supplier", number)
    texts.not_found("address", address)


def reserve(product: str, place: str, language: str, locked: bool) -> None:
    key = "stock.locked" if locked else "stock.empty"
    raise RuntimeError(texts.translated(key, language, product=product, place=place))


def out_of_stock(product: str, warehouse: str, wanted: int) -> None:
    raise RuntimeError(f"{product} is out of stock in {warehouse}, {wanted} were ordered")


def supplier_silent(number: int, days: int) -> None:
    supplier = SUPPLIERS[number % 5 + 1]
    raise RuntimeError(
        f"{supplier['name']} ({supplier['city']}) has not confirmed for {days} days, ask {supplier['contact']}"
    )


def missing_field(row: dict[str, Any], number: int) -> None:
    for name in REQUIRED:
        if name not in row:
            raise ValueError(f"line {number} lacks {name}")


def missing_fields(row: dict[str, Any], number: int) -> None:
    missing = [name for name in REQUIRED if name not in row]
    raise ValueError(f"line {number} is incomplete" + (f": {', '.join(missing)}" if missing else ""))


def no_service(carrier: str, number: int) -> None:
    country = COUNTRIES[number % len(COUNTRIES)]
    raise ValueError("{} does not deliver to {}".format(CARRIERS[carrier], country["name"]))


def lost(parcel: str, carrier: str, seen: str | None) -> None:
    raise RuntimeError(
        " ".join(
            part for part in ("parcel", parcel, "lost by", CARRIERS[carrier], seen and f"last seen in {seen}") if part
        )
    )


def closed(day: str, warehouse: str) -> None:
    holiday = HOLIDAYS.get(day)
    raise RuntimeError(f"{warehouse} is closed on {day}" + (f" ({holiday})" if holiday else ""))


def deliver(who: str, at: str, slot: str | None) -> None:
    texts.require(slot, "no slot for %s on %s", who, at)
    texts.require(who.islower(), "%s is not at home, slot %s was lost", who, slot)
    texts.require(False, "the driver could not find " + who)


def move(product: str, source: str, target: str) -> None:
    if source == target:
        texts.fail("{product} is in {place} already", product=product, place=source)
    texts.fail("{product} cannot be moved from {source} to {target}", product=product, source=source, target=target)


def count(warehouse: str, differences: dict[str, int]) -> None:
    listed = "; ".join(f"{product}: {n:+d}" for product, n in differences.items())
    raise RuntimeError(f"stock-taking of {warehouse} shows differences [{listed}]")


def duplicate(product: str, places: list[str]) -> None:
    raise ValueError(f"{product} is kept by {texts.enumerate_names(places)}, it may be kept once")


def unknown_unit(unit: str, product: str) -> None:
    units = {"pcs": "pieces", "kg": "kilograms", "m": "running metres", "l": "litres"}
    raise KeyError(f"unit {units.get(unit, unit)} does not fit {product}")
