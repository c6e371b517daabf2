"""The office of the harbour: factories of errors, assertions, wrappers, answers of other programs."""

from __future__ import annotations

import contextlib
import enum
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any


class OfficeError(Exception):
    def __init__(self, message: str, *, code: str = "office", **details: Any) -> None:
        super().__init__(message)
        self.details = details


class NotThere(OfficeError):
    """Something was not found."""


class Reason(enum.Enum):
    NO_VISA = "the visa has expired"
    NO_MONEY = "the fee was not paid"
    BLOCKED = "entry is forbidden"


def not_there(what: str, number: Any) -> NotThere:
    return NotThere(f"{what} {number!r} does not exist")


def captain(number: Any) -> None:
    raise not_there("captain", number)


def pier_or_gate(number: Any, gate: bool) -> None:
    if gate:
        raise not_there("gate", number)
    raise not_there("pier", number)


def fee(amount: Any, low: Any) -> None:
    assert amount > low, f"fee {amount} is below {low}"


def stamp(paper: str) -> None:
    assert paper, "paper without a stamp"


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    try:
        yield
    except KeyError as error:
        raise OfficeError(f"step {name} failed: {error}") from error


def clear(papers: dict[str, Any], who: str) -> None:
    with step("clearing of " + who):
        papers["origin"]


def enter(reason: Reason, who: str) -> None:
    raise OfficeError(f"{who} was turned away: {reason.value}", code=reason.name)


def long_message(who: str, ship: str, count: int) -> None:
    raise RuntimeError(
        f"{who} has booked {count} places on {ship}, which is more than the agreement allows; call the agent of {who}"
    )


def by_mapping(values: dict[str, Any]) -> None:
    raise ValueError("invoice %(number)s of %(who)s has no %(what)s" % values)


@dataclass
class Booking:
    ship: str
    nights: int

    def __post_init__(self) -> None:
        if self.nights < 1:
            raise ValueError(f"booking of {self.ship} for {self.nights} nights")

    @property
    def cabin(self) -> str:
        raise LookupError(f"no cabin on {self.ship} is free")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a booking has no {name}")


def pages(rows: list[Any]) -> Iterator[Any]:
    for row in rows:
        if row is None:
            raise OfficeError(f"page {len(rows)} is blank")
        yield row


def print_pages(rows: list[Any]) -> None:
    list(pages(rows))


def give_up(times: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            last: Exception | None = None
            for _ in range(times):
                try:
                    return function(*args)
                except ConnectionError as error:
                    last = error
            raise OfficeError(f"{function.__name__} gave up after {times} tries: {last}")

        return inner

    return decorate


@give_up(3)
def telegraph(text: str) -> None:
    raise ConnectionResetError(text)


@give_up(2)
def telephone(text: str) -> None:
    raise ConnectionRefusedError(text)


def in_pool(number: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(captain, number).result()


def program(text: str) -> None:
    made = subprocess.run([sys.executable, "-c", f"import sys; sys.exit({text!r})"], capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"the scanner stopped with {made.returncode}: {made.stderr.strip()}")


def answered(body: dict[str, Any]) -> None:
    raise OfficeError("the registry answered " + json.dumps(body))


def page(body: str) -> None:
    raise RuntimeError(f"the registry sent a page instead of a list:\n{body}")


def statement(query: str, error: str) -> None:
    raise RuntimeError(f"query failed\n{query}\n{error}")


def logged(number: Any, log: Callable[..., None]) -> None:
    message = "ledger %s is closed" % number
    log(message)
    raise OfficeError(message)


def two_logged(number: Any, early: bool) -> None:
    if early:
        message = f"too early for {number}"
    else:
        message = f"too late for {number}"
    raise OfficeError(message)


def partial(who: str) -> None:
    functools.partial(fail_with, kind=OfficeError)(f"{who} is not on duty")


def fail_with(text: str, kind: type[Exception]) -> None:
    raise kind(text)


def same_type_again(number: Any) -> None:
    try:
        captain(number)
    except OfficeError as error:
        raise type(error)(f"watch of {number}: {error}") from None


def german(who: str, days: int) -> None:
    raise ValueError(f"{who} hat seit {days} Tag{'en' if days != 1 else ''} nicht bezahlt")


def german_other(who: str, days: int) -> None:
    raise ValueError(f"{who} ist seit {days} Tag{'en' if days != 1 else ''} verreist")


def check_papers(papers: dict[str, Any], who: str) -> None:
    problems: list[str] = []
    if not papers.get("passport"):
        problems.append("passport is not valid")
    if not papers.get("health"):
        problems.append("health certificate is missing")
    if problems:
        raise OfficeError(f"{who} cannot land", problems=problems)


def check_papers_said(papers: dict[str, Any], who: str) -> None:
    problems = [f"{name} is missing" for name, value in papers.items() if not value]
    raise OfficeError(f"papers of {who} are not complete: {', '.join(problems)}")
