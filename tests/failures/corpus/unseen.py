"""Causes written when the second algorithm was done, and measured once: see docs/decisions/causes.md."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.collect import Cause
from tests.failures.corpus.rented import _CITIES, _DAYS, some, who

CAUSES: list[Cause] = []
_STREETS = ("Baker Street", "Rue de la Paix", "Am Markt", "Calle Mayor", "Error Lane", "Long Road")
_CARRIERS = ("DHL", "La Poste", "Fast & Safe", "Pony Express")


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(name, call))


def parcel(s: Any) -> Any:
    return s.v.pick(s.v(), "the red box", s.v.sku(), s.v.word(), f"{s.v.name()}'s books")


cause("parcel lost (lookup)", lambda s: s.bureau_post.lost(parcel(s), who(s), s.v.pick(*_CITIES)))
cause("parcel lost", lambda s: s.bureau_post.lost_bare(parcel(s), who(s), s.v.pick(*_CITIES)))
cause("scanned twice", lambda s: s.bureau_post.scanned_twice(parcel(s), who(s)))
cause("too heavy for the lift", lambda s: s.bureau_post.heavy(parcel(s), s.v.pick("very many", s.v(30, 90))))
cause("no letter box", lambda s: s.bureau_post.warned(s.v.pick(*_STREETS), s.v.pick(s.v(1, 99), "12a", "rear house")))
cause("no stamp", lambda s: s.bureau_post.check({"from": who(s), "to": "x"}))
cause("no receiver", lambda s: s.bureau_post.check({"from": who(s), "stamp": "x"}))
cause("not delivered", lambda s: s.bureau_post.which([who(s) for _ in range(s.v(1, 5))]))
cause("not known here", lambda s: s.bureau_post.either(who(s), True))
cause("on holiday", lambda s: s.bureau_post.either(who(s), False))
cause("lives nowhere", lambda s: s.bureau_post.forward(who(s), None))
cause("letters kept", lambda s: s.bureau_post.forward(who(s), who(s)))
cause("shelf differs", lambda s: s.bureau_post.count(s.v.pick("north", "B2", "top shelf"), s.v(1, 9), s.v(10, 20)))
cause("printer: paper", lambda s: s.bureau_post.repeat(f"no paper left in tray {s.v(1, 4)}"))
cause("printer: lost", lambda s: s.bureau_post.repeat(f"connection to {s.v.word()} was reset by peer"))
cause("not a valid size", lambda s: s.bureau_post.rule("size", s.v.pick(s.v.word(), 7), some(s, ("S", "M", "L"), 1)))
cause("strike", lambda s: s.bureau_post.strike(s.v.pick(*_CITIES), s.v.pick(None, *_DAYS)))
cause(
    "carrier refused",
    lambda s: s.bureau_post.Carrier(s.v.pick(*_CARRIERS)).reject(who(s), s.v.pick(None, "no space", "strike")),
)
