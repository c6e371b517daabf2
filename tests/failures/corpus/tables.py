"""Causes whose messages have a text from a table: of errors, where each is a cause, and of data, where none is."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.collect import Cause
from tests.failures.corpus.untuned import product, who

CAUSES: list[Cause] = []


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(f"table {name}", call))


def each(name: str, function: str, *keys: Any) -> None:
    """One cause for each reason."""
    for key in keys:
        cause(f"{name}: {key}", lambda s, key=key: getattr(s.market_reasons, function)(key, who(s)))


# -- tables of errors
each("bank", "charge", 51, 54, 57, 62)
each("provider", "call", 0, 1, 2)
each("bounce", "deliver", "5.1.1", "5.2.2")
each("partner", "ask", 1, 2, 3)
each("line", "patch", 0, 1, 2)
each("sync", "sync", "a", "b")
each("price", "price", "STALE", "LIMIT")
each("ship", "ship", 0, 1, 2)
for hold in ("SANCTIONED", "UNPAID"):
    cause(f"hold: {hold}", lambda s, hold=hold: s.market_reasons.release(s.market_reasons.Hold[hold], who(s)))
for fault in ("lost", "wet"):
    cause(f"carrier: {fault}", lambda s, fault=fault: s.market_reasons.Carrier().report(fault, product(s)))

# -- tables of data
cause("depot", lambda s: s.market_reasons.depot_down(s.v(1, 6), s.v.pick("a half", s.v(1, 99))))
cause("client", lambda s: s.market_reasons.client_silent(s.v(0, 5), s.v(1, 99)))
cause("field", lambda s: s.market_reasons.field_empty(s.v.pick(*s.market_reasons.LABELS), s.v()))
cause("desk", lambda s: s.market_reasons.desk_closed(s.v.pick(*s.market_reasons.Desk), who(s)))
cause("city", lambda s: s.market_reasons.city_dark(s.v(1, 4), who(s)))
cause("driver", lambda s: s.market_reasons.driver_gone(s.v(0, 3), s.v.sku()))
cause("late", lambda s: s.market_reasons.partner_late(s.v.pick("a", "b"), s.v(1, 90)))
cause("files", lambda s: s.market_reasons.files_left(s.v(1, 4), s.v.pick("inbox", "x", s.v.word()), s.v(0, 2) == 1))
