"""Messages with a text from a table: reasons, which are causes, and names of places and people, which are data."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from redrive import Fail

DECLINED = {51: "insufficient funds", 54: "card expired", 57: "not permitted", 62: "restricted card"}
REFUSALS = ["quota exceeded", "signature is invalid", "account locked"]
BOUNCES: Mapping[str, str] = MappingProxyType({"5.1.1": "mailbox does not exist", "5.2.2": "mailbox is full already"})
DEPOTS = {1: "Berlin", 2: "Lost Springs", 3: "Wrong Way", 4: "New York", 5: "main hall"}
CLIENTS = ["Nordlicht Handel", "Casa Verde", "Better Business Error Ltd", "not-found ltd", "Fast Freight & Co"]
LABELS = {"first": "first name", "born": "date of birth", "id": "order number", "must": "required field"}


class Hold(enum.Enum):
    SANCTIONED = "country is blocked"
    UNPAID = "invoice was not paid"


class Desk(enum.StrEnum):
    NORTH = "North Gate"
    SOUTH = "Bad Homburg"
    LATE = "Late Counter"


@dataclass(frozen=True, slots=True)
class Answer:
    number: int
    text: str
    city: str


class Line(NamedTuple):
    text: str
    driver: str


ANSWERS = {
    1: Answer(1, "too many requests", "New York"),
    2: Answer(2, "service unavailable", "Hull"),
    3: Answer(3, "access denied", "Wrong Way"),
}
LINES = [Line("line is down", "Ann Lee"), Line("cable is broken", "Dr. Error"), Line("no signal", "the Smiths")]
PARTNERS = {
    "a": {"fault": "token has expired", "name": "Casa Verde"},
    "b": {"fault": "schema is unknown", "name": "Missing Piece Ltd"},
}


class Refused(Exception):
    """What the market refuses."""


class Texts:
    STALE = "price is stale"
    LIMIT = "limit exceeded"


class Carrier:
    faults: ClassVar = {"lost": "parcel was lost", "wet": "label cannot be read"}

    def report(self, key: str, parcel: Any) -> None:
        raise RuntimeError(f"carrier reports {self.faults[key]} on {parcel}")


def charge(code: int, who: Any) -> None:
    raise RuntimeError(f"bank said {DECLINED[code]} for {who}")


def call(number: int, who: Any) -> None:
    raise Fail("TASK_PRECONDITION_FAILED", "provider said %s about %s" % (REFUSALS[number], who))


def deliver(code: str, who: Any) -> None:
    why = BOUNCES.get(code, "unknown")
    raise ValueError("mail to {} came back, {} at their side".format(who, why))


def release(hold: Hold, who: Any) -> None:
    raise Refused(f"order of {who} stays since {hold.value}, ask sales")


def ask(number: int, who: Any) -> None:
    raise RuntimeError(f"partner answered {ANSWERS[number].text} to {who}")


def patch(number: int, who: Any) -> None:
    line = LINES[number]
    raise RuntimeError("not today: " + line.text + " near " + str(who))


def sync(partner: str, who: Any) -> None:
    raise Refused(f"{who}: {PARTNERS[partner]['fault']}")


def price(name: str, who: Any) -> None:
    raise RuntimeError(f"no sale to {who} while {getattr(Texts, name)} today")


def reason(number: int) -> str:
    return REFUSALS[number]


def ship(number: int, who: Any) -> None:
    raise RuntimeError(f"shipping for {who} ended with {reason(number)} at the dock")


def depot_down(number: int, share: Any) -> None:
    raise RuntimeError(f"worker node {DEPOTS[number]} is down to {share}")


def client_silent(number: int, days: Any) -> None:
    raise Fail("TASK_PRECONDITION_FAILED", "no answer from %s for %s days" % (CLIENTS[number], days))


def field_empty(key: str, row: Any) -> None:
    raise ValueError(f"the {LABELS[key]} is empty in row {row}")


def desk_closed(desk: Desk, who: Any) -> None:
    raise Refused(f"{desk} has no time for {who}")


def city_dark(number: int, who: Any) -> None:
    raise RuntimeError(f"nobody in {ANSWERS[number].city} answers {who}")


def driver_gone(number: int, van: Any) -> None:
    line = LINES[number]
    raise RuntimeError("van {} left without {}".format(van, line.driver))


def partner_late(partner: str, minutes: Any) -> None:
    raise RuntimeError(f"{PARTNERS[partner]['name']} is {minutes} minutes late")


def files_left(number: int, folder: str, kept: bool) -> None:
    place = "/srv/" + folder if kept else folder
    raise RuntimeError(f"{number} file{'' if number == 1 else 's'} left in {place}")
