"""Causes that were written when the rules were nearly done: see docs/decisions/causes.md."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.collect import Cause
from tests.failures.corpus.strangers import box, ship

CAUSES: list[Cause] = []


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(f"office {name}", call))


def office(name: str, function: str, *make: Any) -> None:
    cause(name, lambda s: getattr(s.harbour_office, function)(*(one(s) if callable(one) else one for one in make)))


def who(s: Any) -> str:
    return str(
        s.v.pick(s.v.name(), f"{s.v.name().title()} {s.v.word().title()}", s.v.mail(), "Dr. Wrong", "the Error twins")
    )


office("captain", "captain", box)
office("gate", "pier_or_gate", box, True)
office("pier", "pier_or_gate", box, False)
office("fee", "fee", lambda s: s.v(0, 9), lambda s: s.v(10, 90))
office("stamp", "stamp", lambda s: s.v.pick("", None))
office("clear", "clear", lambda s: {s.v.word(): 1}, who)
for reason in ("NO_VISA", "NO_MONEY", "BLOCKED"):
    cause(f"enter {reason}", lambda s, reason=reason: s.harbour_office.enter(s.harbour_office.Reason[reason], who(s)))
office("long message", "long_message", who, ship, lambda s: s.v())
office("by mapping", "by_mapping", lambda s: {"number": box(s), "who": who(s), "what": s.v.pick("date", "sum", "name")})
cause("booking nights", lambda s: s.harbour_office.Booking(ship(s), -s.v(0, 9)))
cause("booking cabin", lambda s: _cabin(s.harbour_office.Booking(ship(s), 3)))
cause("booking attribute", lambda s: getattr(s.harbour_office.Booking(ship(s), 3), s.v.word()))
office("blank page", "print_pages", lambda s: [*s.v.many(), None])
office("telegraph", "telegraph", lambda s: s.v.pick("connection reset by peer", f"line {s.v()} was cut", ship(s)))
office("telephone", "telephone", lambda s: s.v.pick("connection refused", f"line {s.v()} was cut", ship(s)))
office("in pool", "in_pool", box)
for answer in ("no paper in the tray", "lamp is broken"):
    office(f"program {answer}", "program", answer)
office("answered", "answered", lambda s: {"id": s.v.uuid(), s.v.word(): s.v.text(), "ok": False})
office("page", "page", lambda s: f"<html><body>{s.v.text()} {s.v.when()}</body></html>")
office(
    "statement",
    "statement",
    lambda s: f"select {s.v.word()} from {s.v.word()} where id = {s.v()}",
    lambda s: s.v.text(),
)
office("logged", "logged", box, lambda s: print)
office("early", "two_logged", box, True)
office("late", "two_logged", box, False)
office("partial", "partial", who)
office("same type again", "same_type_again", box)
office("german unpaid", "german", who, lambda s: s.v(1, 4))
office("german away", "german_other", who, lambda s: s.v(1, 4))
office("papers passport", "check_papers", lambda s: {"health": 1, "other": s.v()}, who)
office("papers said", "check_papers_said", lambda s: {s.v.word(): 0 for _ in range(s.v(1, 4))}, who)


def _cabin(booking: Any) -> None:
    str(booking.cabin)
