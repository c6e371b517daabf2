"""Loading and unloading: messages of every make, raised in every way."""

from __future__ import annotations

import asyncio
import base64
import configparser
import enum
import functools
import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any


class HarbourError(Exception):
    """Something is wrong in the harbour."""


class Overweight(HarbourError):
    def __init__(self, box: Any, weight: Any) -> None:
        self.box = box
        super().__init__(f"box {box} weighs {weight} tons, more than the crane can lift")


@dataclass
class Berth:
    name: str
    depth: Decimal


@dataclass(eq=False)
class TooDeep(HarbourError):
    ship: str
    berth: Berth

    def __str__(self) -> str:
        return f"{self.ship} is too deep for {self.berth.name}"


class State(enum.StrEnum):
    BOOKED = "booked"
    LOADED = "loaded"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    LOST = "lost"


# -- several statements of one class in one function


def move(box: str, slot: Any, how: str) -> None:
    if how == "taken":
        raise HarbourError(f"slot {slot} holds another box than {box}")
    if how == "closed":
        raise HarbourError(f"row of slot {slot} is closed for {box}")
    if how == "unknown":
        raise HarbourError("crane has never heard of %s near %s" % (box, slot))
    raise HarbourError("box {} slipped at {}".format(box, slot))


def same_words(box: str, early: bool) -> None:
    if early:
        raise HarbourError(f"cannot weigh {box}")
    if len(box) > 1000:
        return
    raise HarbourError(f"cannot weigh {box}")


# -- values that look like words


def may_not(person: str, ship: str) -> None:
    raise RuntimeError(f"{person} may not board {ship}")


def wrong_state(box: str, state: State, wanted: State) -> None:
    raise ValueError(f"box {box} is {state}, expected {wanted}")


def wrong_state_named(box: str, state: State) -> None:
    raise HarbourError(f"box {box} was already {state.value} when the crane came")


def lost_between(box: str, origin: str, target: str) -> None:
    raise RuntimeError(f"{box} got lost between {origin} and {target}")


def between_ports(origin: str, target: str) -> None:
    raise HarbourError(f"no line from {origin} to {target}")


def bad_label(text: str) -> None:
    raise ValueError(f"label reads {text!r}")


def unquoted_label(text: str) -> None:
    raise ValueError(f"the label {text} has no barcode")


def plural(boxes: int, days: int) -> None:
    raise RuntimeError(f"{boxes} box{'es' if boxes != 1 else ''} waiting for {days} day{'s' if days != 1 else ''}")


def shown(value: Any) -> None:
    raise RuntimeError(f"crane got {value!r} instead of a number")


def shown_last(value: Any) -> None:
    raise RuntimeError(f"unexpected reply of the crane: {value}")


def many_lines(rows: Iterable[Any]) -> None:
    raise ValueError("manifest has mistakes:\n" + "\n".join(f" - line {n}: {row} has no weight" for n, row in rows))


def at_path(path: str, by: str) -> None:
    raise RuntimeError(f"manifest {path} was changed by {by}")


def at_url(url: str) -> None:
    raise RuntimeError("customs under " + url + " gave an empty list")


# -- what another side says


def customs(answer: str, box: str) -> None:
    raise RuntimeError(f"customs refused {box}: {answer}")


def customs_code(code: str, box: str) -> None:
    raise HarbourError(f"customs code {code} for {box}")


# -- made by callers


def check(condition: Any, text: str) -> None:
    if not condition:
        raise HarbourError(text)


def inspect_box(box: str, how: str) -> None:
    check(how != "seal", f"seal of {box} is broken")
    check(how != "door", f"door of {box} does not close")
    check(how != "paint", f"{box} needs paint")


def missing(what: str, number: Any) -> None:
    raise HarbourError(f"no {what} with number {number}")


def find_box(number: Any) -> None:
    missing("box", number)


def find_ship(number: Any) -> None:
    missing("ship", number)


# -- libraries


def read_manifest(text: str) -> Any:
    return json.loads(text)


def read_weight(text: str) -> int:
    return int(text)


def read_seal(data: bytes) -> Any:
    return struct.unpack("<IIHH", data)


def read_photo(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def read_arrival(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d")


def read_settings(text: str) -> str:
    parser = configparser.ConfigParser()
    parser.read_string(text)
    return parser["crane"]["limit"]


def read_file(path: str) -> str:
    return Path(path).read_text()


def attribute(box: Any) -> Any:
    return box.weight


def index(rows: list[Any], at: int) -> Any:
    return rows[at]


# -- chains, groups, depths


def load(box: str, text: str) -> None:
    try:
        read_weight(text)
    except ValueError as error:
        raise HarbourError(f"cannot load {box}") from error


def load_listed(box: str, row: dict[str, Any]) -> None:
    try:
        row["weight"]
    except KeyError as error:
        raise HarbourError(f"cannot load {box}") from error


def load_wrapped(box: str, how: str) -> None:
    try:
        move(box, 4, how)
    except HarbourError as error:
        raise RuntimeError(f"job of {box} stopped: {error}") from error


def again(times: int, function: Callable[[], None]) -> None:
    try:
        function()
    except HarbourError:
        if times <= 0:
            raise
        again(times - 1, function)


def tried(times: int, box: str) -> None:
    again(times, lambda: move(box, 7, "closed"))


def deep(levels: int, box: str) -> None:
    if levels:
        deep(levels - 1, box)
    raise HarbourError(f"stack of {box} leans")


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


@traced
def decorated(box: str) -> None:
    raise HarbourError(f"hook under {box} is open")


in_lambda = lambda box: missing("hook", box)  # noqa: E731


def comprehension(rows: list[str]) -> list[int]:
    return [read_weight(row) for row in rows]


def generated(box: str) -> None:
    scope: dict[str, Any] = {"HarbourError": HarbourError, "__name__": __name__, "__file__": __file__}
    exec("def made(box):\n    raise HarbourError(f'generated crane dropped {box}')", scope)
    scope["made"](box)


async def _unload(box: str) -> None:
    await asyncio.sleep(0)
    raise HarbourError(f"pump of {box} is dry")


async def _both(boxes: list[str]) -> None:
    async with asyncio.TaskGroup() as group:
        for box in boxes:
            group.create_task(_unload(box))


def unload(box: str) -> None:
    asyncio.run(_unload(box))


def unload_all(boxes: list[str]) -> None:
    asyncio.run(_both(boxes))


# -- tables


TEXTS = {
    "en": {"full": "berth {berth} is full", "dry": "berth {berth} has run dry"},
    "de": {"full": "Liegeplatz {berth} ist voll", "dry": "Liegeplatz {berth} ist trocken"},
    "fr": {"full": "le quai {berth} est complet", "dry": "le quai {berth} est à sec"},
}


def berth_full(language: str, berth: str) -> None:
    raise HarbourError(TEXTS[language]["full"].format(berth=berth))


def berth_dry(language: str, berth: str) -> None:
    raise HarbourError(TEXTS[language]["dry"].format(berth=berth))


NO_CREW = "no crew on %s since %s"


def no_crew(ship: str, day: str) -> None:
    raise RuntimeError(NO_CREW % (ship, day))


def no_fuel(ship: str, litres: Any) -> None:
    message = f"{ship} has"
    message += f" {litres} litres left"
    if not litres:
        message += ", which is nothing"
    raise RuntimeError(message)


def raise_it(error: HarbourError) -> None:
    raise error
