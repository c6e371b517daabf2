"""Helpers that say what went wrong, for every part of the market."""

from __future__ import annotations

from typing import Any, NoReturn

MESSAGES = {
    "en": {
        "stock.empty": "{product} is out of stock in {place}",
        "stock.locked": "{product} is locked by a stock-taking in {place}",
        "basket.old": "the basket of {who} has expired",
    },
    "de": {
        "stock.empty": "{product} ist in {place} nicht mehr vorrätig",
        "stock.locked": "{product} ist durch eine Inventur in {place} gesperrt",
        "basket.old": "Der Warenkorb von {who} ist abgelaufen",
    },
}


class MarketError(Exception):
    """What the market says when it cannot go on."""


def not_found(what: str, n: Any) -> NoReturn:
    raise LookupError(f"{what} {n} not found")


def require(condition: Any, message: str, *args: Any) -> None:
    if not condition:
        raise ValueError(message % args if args else message)


def fail(message: str, **values: Any) -> NoReturn:
    raise MarketError(message.format(**values))


def translated(key: str, language: str = "en", **values: Any) -> str:
    return MESSAGES[language][key].format(**values)


def enumerate_names(names: list[str]) -> str:
    if not names:
        return "nobody"
    if len(names) == 1:
        return names[0]
    return ", ".join(names[:-1]) + " and " + names[-1]
