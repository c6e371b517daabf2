"""Messages of an application as people write them: formats kept elsewhere, lists, optional parts, bare names."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []
_COMPANIES = (
    "Acme Ltd",
    "Globex",
    "Initech GmbH",
    "Umbrella",
    "Wayne & Sons",
    "Hooli",
    "Stark Industries",
    "O'Brien Bakery",
    "Søndergaard ApS",
    "müller druck",
    "The Open Door",
    "Blue Sky Travel Error Desk",
    "Paper Street Soap Co.",
)
_PLANS = ("Pro", "Free", "Business Plus", "team", "Enterprise (legacy)", "starter-2024", "Family")
_CITIES = ("Berlin", "New York", "São Paulo", "Zürich", "Lyon", "Bad Homburg")
_DAYS = ("Monday", "Sunday", "a public holiday", "2026-05-01", "the 3rd of May")
_PAPERS = ("passport", "proof of address", "bank statement", "photo", "signed contract")
_REASONS = ("late payment", "noise", "fire damage", "moving abroad", "")
_FILES = ("letter.pdf", "annual report (final).docx", "/var/spool/x17", "invoice March.pdf", "scan", "C:\\scans\\a.tif")


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(name, call))


def some(s: Any, options: tuple[str, ...], low: int = 0) -> list[str]:
    return s.v.random.sample(options, s.v(low, len(options) + 1))


def who(s: Any) -> Any:
    return s.v.pick(*_COMPANIES, s.v.name(), s.v.name().title(), f"{s.v.name()} {s.v.word()}")


cause("plan limited", lambda s: s.bureau_desk.plan_limit(who(s), s.v.pick(*_PLANS), s.v(1, 90)))
cause("plan gone", lambda s: s.bureau_desk.plan_gone(s.v.pick(*_PLANS)))
cause("too many seats", lambda s: s.bureau_desk.seats(who(s), s.v(1, 90), s.v.pick(*_PLANS)))
cause("branch not open", lambda s: s.bureau_desk.not_open(s.v.pick(*_CITIES), s.v.pick(*_DAYS)))
cause("room taken", lambda s: s.bureau_desk.taken(s.v.pick("Lagoon", "the attic", 17, "B2"), who(s), s.v.pick(*_DAYS)))
cause("no key", lambda s: s.bureau_desk.no_key(who(s), s.v.pick("the roof", "floor 3", "cellar", "the garage")))
cause("account blocked", lambda s: s.bureau_desk.blocked(who(s), s.v.pick("the bank", s.v.name(), "an operator")))
cause("account closed", lambda s: s.bureau_desk.closed(who(s)))
cause("papers missing", lambda s: s.bureau_desk.missing_papers(who(s), some(s, _PAPERS)))
cause("invoices unpaid", lambda s: s.bureau_desk.unpaid([s.v.pick(s.v.sku(), s.v.word()) for _ in range(s.v(1, 6))]))
cause("rows not booked", lambda s: s.bureau_desk.unpaid_rows([s.v.pick(s.v(), who(s)) for _ in range(s.v(0, 5))]))
cause("contract cancelled", lambda s: s.bureau_desk.cancelled(who(s), s.v.pick(*_REASONS)))
cause("moved out", lambda s: s.bureau_desk.moved(who(s), s.v.pick(None, *_CITIES)))
cause("not printed", lambda s: s.bureau_desk.letter(s.v.pick(*_FILES), s.v.pick("the big printer", "hp-2", "Lobby")))
cause("scan unreadable", lambda s: s.bureau_desk.scan(s.v.pick(*_FILES)))
cause("badge", lambda s: s.bureau_desk.badge(who(s), s.v.pick("the gate", "door 7", "Lobby")))
cause("deposit short", lambda s: s.bureau_desk.deposit(who(s), s.v.amount(), s.v.pick("EUR", "dollars", "CHF")))
cause("keys out", lambda s: s.bureau_desk.keys(who(s), s.v(1, 4)))
cause("no bank account", lambda s: s.bureau_desk.two(who(s), True))
cause("no address given", lambda s: s.bureau_desk.two(who(s), False))
cause("desks differ", lambda s: s.bureau_desk.assertion(who(s), s.v(1, 9), s.v(10, 20)))
cause("refused by the bureau", lambda s: s.bureau_desk.refused(who(s), s.v.pick(*_REASONS)))
cause(
    "form wrong",
    lambda s: s.bureau_desk.errors_of(
        s.v.pick("A1", "moving in", s.v()), [(p, s.v.pick("missing", "unreadable")) for p in some(s, _PAPERS, 1)]
    ),
)
cause("neighbour: noise", lambda s: s.bureau_desk.neighbour(f"there was a loud noise error at {s.v.when()}"))
cause("neighbour: water", lambda s: s.bureau_desk.neighbour(f"connection of the water failed in {s.v.pick(*_CITIES)}"))
cause("not shippable", lambda s: s.bureau_desk.status(s.v(), s.v.pick("draft", "on hold", "PAID", "lost in transit")))
cause("may not approve", lambda s: s.bureau_desk.approve(who(s), some(s, ("owners", "the board", "admins"), 1)))
cause(
    "ledger", lambda s: s.bureau_desk.Ledger().close(s.v.pick("May", "petty cash", "2026"), s.v.pick("3 EUR", who(s)))
)
