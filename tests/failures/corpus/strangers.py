"""Causes that were written after the rules, for a comparison of ways to tell them apart."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []
_PORTS = ("Bergen", "New Haven", "Santa Cruz", "Port Lost", "Hull", "la Spezia", "Closed Bay", "north pier", "Aarhus")
_SHIPS = ("Blue Marlin", "ever given", "Endurance", "SS Error", "Queen Mary", "anna-karina", "The Invalid", "Vega")


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(f"harbour {name}", call))


def box(s: Any) -> str:
    return str(s.v.pick(s.v.sku(), s.v.uuid(), s.v.word(), s.v.name(), s.v(1, 9999), s.v.ulid()))


def port(s: Any) -> str:
    return str(s.v.pick(*_PORTS))


def ship(s: Any) -> str:
    return str(s.v.pick(*_SHIPS))


def value(s: Any) -> Any:
    return s.v.pick(
        None, True, s.v(), s.v.text(), s.v.many(), {s.v.word(): s.v()}, {s.v.name()}, b"\x00raw", Decimal(s.v()) / 7,
        object(), s.v.amount(), s.v.when(), ValueError(s.v.word()), s.v.path(), s.v.mail(), "", (1, "two"),
    )  # fmt: skip


def cranes(name: str, function: str, *make: Any) -> None:
    cause(name, lambda s: getattr(s.harbour_cranes, function)(*(one(s) if callable(one) else one for one in make)))


for how in ("taken", "closed", "unknown", "slipped"):
    cranes(f"move {how}", "move", box, lambda s: s.v(1, 99), how)
cranes("same words twice", "same_words", box, lambda s: s.v.number % 2 == 0)
cause("overweight", lambda s: _raise(s.harbour_cranes, "Overweight", box(s), s.v.amount()))
cause("too deep", lambda s: _raise(s.harbour_cranes, "TooDeep", ship(s), s.harbour_cranes.Berth(port(s), Decimal(3))))
cranes("may not board", "may_not", lambda s: s.v.name(), ship)
cranes("wrong state", "wrong_state", box, lambda s: s.v.pick(*s.harbour_cranes.State),
       lambda s: s.v.pick(*s.harbour_cranes.State))  # fmt: skip
cranes("wrong state, named", "wrong_state_named", box, lambda s: s.v.pick(*s.harbour_cranes.State))
cranes("lost between", "lost_between", box, port, port)
cranes("no line", "between_ports", port, port)
cranes("bad label", "bad_label", lambda s: s.v.pick(s.v.text(), "not found", "it's here", 'say "no"', ""))
cranes("unquoted label", "unquoted_label", lambda s: s.v.pick(s.v.text(), "not found", "missing file", s.v.word()))
cranes("plural", "plural", lambda s: s.v(1, 4), lambda s: s.v(1, 4))
cranes("shown", "shown", value)
cranes("shown last", "shown_last", value)
cranes("many lines", "many_lines", lambda s: [(s.v(1, 500), box(s)) for _ in range(s.v(1, 9))])
cranes("path", "at_path", lambda s: s.v.path(), lambda s: s.v.pick(s.v.name(), s.v.mail(), "root"))
cranes("url", "at_url", lambda s: f"https://{s.v.word()}.example.com/{s.v.word()}?id={s.v()}")
for answer in ("certificate is missing", "duty not paid", "import is forbidden"):
    cranes(f"customs: {answer}", "customs", answer, box)
cranes("customs: what a person typed", "customs_code", lambda s: s.v.word(), box)
for how in ("seal", "door", "paint"):
    cranes(f"inspect {how}", "inspect_box", box, how)
cranes("find box", "find_box", lambda s: s.v())
cranes("find ship", "find_ship", lambda s: s.v.pick(s.v(), s.v.word()))
cranes("json", "read_manifest", lambda s: s.v.pick("{", "", "[1,", '{"a" 1}', s.v.text()))
cranes("int", "read_weight", lambda s: s.v.pick("", s.v.word(), "12t", "1,5"))
cranes("struct", "read_seal", lambda s: b"x" * s.v(0, 11))
cranes("base64", "read_photo", lambda s: s.v.pick("a", "b", "a$b=", "abc"))
cranes("date", "read_arrival", lambda s: s.v.pick("yesterday", "2026-13-01", "2026-01-01T00:00", s.v.word()))
cranes("no section", "read_settings", lambda s: f"[{s.v.word()}]\na = 1\n")
cranes("no file", "read_file", lambda s: f"/nonexistent/{s.v.word()}/{s.v.hex()}")
cranes("no attribute", "attribute", lambda s: s.v.pick(None, 1, "text", [], {}))
cranes("no index", "index", lambda s: s.v.many(1, 3), lambda s: s.v(5, 90))
cranes("load, no number", "load", box, lambda s: s.v.word())
cranes("load, not listed", "load_listed", box, lambda s: {s.v.word(): 1})
for how in ("taken", "closed"):
    cranes(f"load wrapped {how}", "load_wrapped", box, how)
cranes("tried again", "tried", lambda s: s.v(0, 5), box)
cranes("deep", "deep", lambda s: s.v(0, 40), box)
cranes("decorated", "decorated", box)
cranes("lambda", "in_lambda", box)
cranes("comprehension", "comprehension", lambda s: [s.v.word()] * s.v(1, 4))
cranes("generated", "generated", box)
cranes("async", "unload", box)
cranes("group", "unload_all", lambda s: [box(s) for _ in range(s.v(1, 6))])
cranes("translated: full", "berth_full", lambda s: s.v.pick("en", "de", "fr"), port)
cranes("translated: dry", "berth_dry", lambda s: s.v.pick("en", "de", "fr"), port)
cranes("format constant", "no_crew", ship, lambda s: s.v.when())
cranes("added up", "no_fuel", ship, lambda s: s.v.pick(0, s.v(), s.v()))


def _raise(module: Any, name: str, *args: Any) -> None:
    module.raise_it(getattr(module, name)(*args))
