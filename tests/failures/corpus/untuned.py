"""Causes as applications raise them, written before the algorithm was; of half of them only the score was looked at.

What one cause is was judged as an operator would who wants one line for one thing to mend. Left out as matters of taste:
reasons looked up in a table by a provider's code, the same message in two languages, which stage of a pipeline found no
data, and words that stand for one of two ways (debit or credit, better or worse).
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []
_PEOPLE = (
    "Ann Lee",
    "bob",
    "María José",
    "van der Berg",
    "Jürgen",
    "O'Neil",
    "Li Wei",
    "Dr. Error",
    "the Smiths",
    "kim",
)
_CITIES = ("Berlin", "New York", "São Paulo", "Lost Springs", "Hull", "Bad Tölz", "st. ives", "Wrong Way")
_HOSTS = ("web-01", "db.internal", "worker_a", "10.0.0.7", "build agent", "gpu box", "edge-fra-3.example.net")
_PRODUCTS = (
    "Garden Chair Oak",
    "blue-mug",
    "desk_lamp",
    "Mug",
    "Wool Blanket",
    "Missing Piece Puzzle",
    "cable 2m",
    "X",
)
_COMPANIES = ("Nordlicht Handel", "Casa Verde", "ACME", "Fast Freight & Co", "müller", "Better Business Error Ltd")
_MONTHS = ("May 2026", "2026-05", "March", "last month", "Q3/2026", "week 31")


def cause(name: str, call: Any) -> None:
    """``name``: what belongs together, and which of it; both halves keep together what one helper says."""
    CAUSES.append(Cause(f"market {name}", call))


def halves() -> tuple[list[Cause], list[Cause]]:
    """The half that the algorithm was tuned on, and the half that was kept aside."""
    topics = sorted({one.name.partition(":")[0] for one in CAUSES})
    random.Random(20261116).shuffle(topics)
    aside = set(topics[::2])
    return (
        [one for one in CAUSES if one.name.partition(":")[0] not in aside],
        [one for one in CAUSES if one.name.partition(":")[0] in aside],
    )


def who(s: Any) -> Any:
    return s.v.pick(*_PEOPLE, s.v.name(), s.v.mail(), f"{s.v.name().title()} {s.v.word().title()}")


def product(s: Any) -> Any:
    return s.v.pick(*_PRODUCTS, s.v.sku(), s.v.text())


def place(s: Any) -> Any:
    return s.v.pick(*s.market_stock.WAREHOUSES, *_CITIES)


def money(s: Any) -> Decimal:
    return Decimal(s.v(1, 900_000)) / 100


def payment(s: Any, **given: Any) -> Any:
    pay = s.market_pay
    values = {
        "id": s.v.pick(s.v.cus("pay"), s.v(), s.v.uuid()),
        "amount": money(s),
        "currency": s.v.pick(*pay.CURRENCIES),
        "method": s.v.pick(*pay.Method),
        "state": pay.State.OPEN,
    } | given
    return pay.Payment(str(values.pop("id")), **values)


def some(s: Any, options: Any, low: int = 0) -> list[Any]:
    return s.v.random.sample(list(options), s.v(low, len(options) + 1))


# -- payments
cause("capture: too much", lambda s: s.market_pay.capture(payment(s), Decimal(0)))
cause("capture: twice", lambda s: s.market_pay.capture(payment(s, state=s.market_pay.State.SETTLED), Decimal(10**9)))
cause("capture: unconfirmed", lambda s: s.market_pay.capture(payment(s), Decimal(10**9)))
cause("charge: expired", lambda s: s.market_pay.charge(payment(s), Decimal(0), True))
cause("charge: no funds", lambda s: s.market_pay.charge(payment(s), Decimal(0), False))
cause("charge: fraud", lambda s: s.market_pay.charge(payment(s), Decimal(10**9), False))
cause("refund: old", lambda s: s.market_pay.refund(payment(s), s.v(91, 900)))
cause("refund: dispute", lambda s: s.market_pay.refund(payment(s, state=s.market_pay.State.DISPUTED), 1))
cause("refund: twice", lambda s: s.market_pay.refund(payment(s), 1))
cause("route", lambda s: s.market_pay.route(payment(s), s.v.pick(*s.market_pay.ACQUIRERS)))
cause("method", lambda s: s.market_pay.route_method(s.v(), s.v.pick("Norway", "New Zealand", "CH", "Côte d'Ivoire")))
cause("limit", lambda s: s.market_pay.limit(who(s), s.v(1000, 9000), s.v()))
cause("quote", lambda s: s.market_pay.quote(s.v(), who(s)))
cause(
    "rate",
    lambda s: s.market_pay.convert(
        money(s), s.v.pick(*s.market_pay.CURRENCIES, "XAU"), s.v.pick(*s.market_pay.CURRENCIES, "Old Shilling")
    ),
)
cause(
    "batch",
    lambda s: s.market_pay.settle(
        s.v.hex(), [payment(s, state=s.v.pick(*s.market_pay.State)) for _ in range(s.v(0, 4))]
    ),
)
cause(
    "disputed",
    lambda s: s.market_pay.dispute(payment(s), who(s), s.v.pick(None, "", "never arrived", "wrong size", s.v.text())),
)
cause("iban: short", lambda s: s.market_pay.check_iban(f"DE{s.v()}"))
cause(
    "iban: digit",
    lambda s: s.market_pay.check_iban(f"CH{s.v():020d}", s.v.pick(None, "Volksbank", "Banco do Sul", "UBS")),
)
cause(
    "payout",
    lambda s: s.market_pay.payout(
        s.v.pick(*_COMPANIES), money(s), s.v.pick("EUR", "USD"), s.v.pick("UBS", "First National Bank", "ING")
    ),
)
cause("acquirer", lambda s: s.market_pay.acquirer_down(s.v()))
cause("reconcile", lambda s: s.market_pay.reconcile(s.v.when(), money(s), money(s)))

# -- stock
cause("lookup: order", lambda s: s.market_stock.order(s.v()))
cause("lookup: customer", lambda s: s.market_stock.customer(s.v()))
cause("lookup: supplier", lambda s: s.market_stock.load(s.v(), False, ""))
cause(
    "lookup: address",
    lambda s: s.market_stock.load(s.v(), True, s.v.pick("7 High Street", "Am Ring 3", s.v(), s.v.uuid(), *_CITIES)),
)
cause("reserve: empty", lambda s: s.market_stock.reserve(product(s), place(s), "de", False))
cause("reserve: locked", lambda s: s.market_stock.reserve(product(s), place(s), "de", True))
cause("basket", lambda s: s.market_mail.basket(who(s), "en"))
cause(
    "attachment", lambda s: s.market_mail.attach(s.v.pick("a.pdf", "Annual Report.docx", s.v.path()), s.v(1, 90), "de")
)
cause("stock out", lambda s: s.market_stock.out_of_stock(product(s), place(s), s.v(1, 99)))
cause("stock none", lambda s: s.market_stock.out_of_stock_known(s.v()))
cause("supplier silent", lambda s: s.market_stock.supplier_silent(s.v(), s.v(1, 60)))
cause(
    "field missing",
    lambda s: s.market_stock.missing_field(dict.fromkeys(some(s, s.market_stock.REQUIRED)[:-1], 1), s.v()),
)
cause(
    "fields missing", lambda s: s.market_stock.missing_fields(dict.fromkeys(some(s, s.market_stock.REQUIRED), 1), s.v())
)
cause("no service", lambda s: s.market_stock.no_service(s.v.pick(*s.market_stock.CARRIERS), s.v()))
cause("heavy", lambda s: s.market_stock.too_heavy(s.v.pick(*s.market_stock.CARRIERS), s.v(300, 9000) / 10))
cause(
    "parcel lost",
    lambda s: s.market_stock.lost(s.v.sku(), s.v.pick(*s.market_stock.CARRIERS), s.v.pick(None, *_CITIES)),
)
cause(
    "warehouse closed",
    lambda s: s.market_stock.closed(s.v.pick(*s.market_stock.HOLIDAYS, "2026-03-07", "2026-08-15"), place(s)),
)
cause("row: vat", lambda s: s.market_stock.import_row(s.v(), "", "1", "1"))
cause(
    "row: quantity",
    lambda s: s.market_stock.import_row(s.v(), "x", s.v.pick("a few", "1.5", "-", "many", s.v.word()), ""),
)
cause(
    "row: price",
    lambda s: s.market_stock.import_row(s.v(), "x", "1", s.v.pick("free", "on request", "12..5", "€", s.v.word())),
)
cause("guard: shelf", lambda s: s.market_stock.shelf(s.v(41, 900) / 4 + 41, 4))
cause("guard: temperature", lambda s: s.market_stock.shelf(1, s.v(90, 400) / 10))
cause("deliver: slot", lambda s: s.market_stock.deliver(who(s), s.v.when(), None))
cause(
    "deliver: away",
    lambda s: s.market_stock.deliver(str(who(s)).title(), s.v.when(), s.v.pick("8-10", "morning", "late evening")),
)
cause("deliver: not found", lambda s: s.market_stock.deliver(str(who(s)).lower(), s.v.when(), "8-10"))
cause("move: there", lambda s: (lambda x: s.market_stock.move(product(s), x, x))(place(s)))
cause("move: refused", lambda s: s.market_stock.move(product(s), place(s), "the yard"))
cause("count", lambda s: s.market_stock.count(place(s), {str(product(s)): s.v(-9, 9) for _ in range(s.v(1, 5))}))
cause("kept twice", lambda s: s.market_stock.duplicate(product(s), some(s, s.market_stock.WAREHOUSES)))
cause("unit", lambda s: s.market_stock.unknown_unit(s.v.pick("pcs", "kg", "m", "l", "dozen"), product(s)))

# -- mail
cause(
    "render",
    lambda s: s.market_mail.render(
        s.v.pick(*s.market_mail.TEMPLATES), s.v.pick("name", "first name", "{{total}}", "order_id")
    ),
)
cause("placeholder", lambda s: s.market_mail.render_known(s.v()))
cause("send: nobody", lambda s: s.market_mail.send(s.v.pick(*s.market_mail.SENDERS), []))
cause(
    "send: refused",
    lambda s: s.market_mail.send(s.v.pick(*s.market_mail.SENDERS), [s.v.mail() for _ in range(s.v(1, 5))]),
)
cause("list: none", lambda s: s.market_mail.unsubscribe(who(s), []))
cause(
    "list: still",
    lambda s: s.market_mail.unsubscribe(who(s), some(s, ("weekly news", "offers", "new-in", "black_friday"), 1)),
)
cause(
    "permit",
    lambda s: s.market_mail.permit(who(s), s.v(), s.v.pick("delete orders", "refund", "export data", "see prices")),
)
cause("invite", lambda s: s.market_mail.invite(who(s), who(s), s.v(1, 5)))
cause("login: locked", lambda s: s.market_mail.login(who(s), s.v(6, 90)))
cause("login: wrong", lambda s: s.market_mail.login(who(s), 1))
cause("merge", lambda s: s.market_mail.merge({"name": who(s)}, {"name": who(s)}))
cause("greet", lambda s: s.market_mail.greet(s.v.pick("Mr", "Mrs", "Dr. med.", "", "Prof. Dr.", "Sir"), who(s)))
cause(
    "profile",
    lambda s: s.market_mail.profile(
        s.v.pick("first name", "birth_date", "phone-number"), s.v.pick(who(s), "n/a", "07.07", s.v())
    ),
)

# -- operations
cause("deploy: no start", lambda s: s.market_ops.deploy(f"v{s.v(1, 9)}.{s.v(0, 30)}", s.v.pick(*_HOSTS), 0))
cause(
    "deploy: unhealthy",
    lambda s: s.market_ops.deploy(s.v.pick("latest", s.v.hex(), f"{s.v(1, 9)}.0-rc1"), s.v.pick(*_HOSTS), s.v(1, 9)),
)
cause("replica", lambda s: s.market_ops.replica(s.v(), s.v() / 7))
cause("disk", lambda s: s.market_ops.disk(s.v.pick(*_HOSTS), s.v(80, 100)))
cause("heartbeat", lambda s: s.market_ops.unreachable(s.v()))
cause(
    "shape", lambda s: s.market_ops.infer(s.v.pick(*s.market_ops.MODELS), tuple(s.v(1, 512) for _ in range(s.v(1, 4))))
)
cause(
    "drift",
    lambda s: s.market_ops.drift(
        s.v.pick(*s.market_ops.MODELS), s.v.pick("age", "unit price", "order_date", "basket size"), s.v(1, 999) / 1000
    ),
)
cause(
    "column type",
    lambda s: s.market_ops.column(
        s.v.pick(*s.market_ops.COLUMNS, "note"), s.v.pick("object", "int64", "datetime64[ns, UTC]", "float64")
    ),
)
cause("column gone", lambda s: s.market_ops.column_known(s.v()))
cause(
    "nulls",
    lambda s: s.market_ops.null_values(
        s.v.pick("sales", "raw.orders", "dim customer"), {n: s.v(1, 900) for n in some(s, s.market_ops.COLUMNS)}
    ),
)
cause("train: nan", lambda s: s.market_ops.train(s.v.pick("ranker", "price model", "fraud_net_v2"), float("nan")))
cause("train: loss", lambda s: s.market_ops.train(s.v.pick("ranker", "price model", "fraud_net_v2"), s.v() / 13))
cause("report empty", lambda s: s.market_ops.report(s.v(1, 4), s.v.pick(*_MONTHS)))
cause("quota", lambda s: s.market_ops.quota(s.v.pick("web", "data science", "mobile-apps", "core_infra"), s.v()))
cause(
    "licence: ended",
    lambda s: s.market_ops.licence(
        s.v.pick(*_PRODUCTS, "Photo Suite", "DB-Studio"), s.v.pick("yesterday", s.v.when(), "last week")
    ),
)
cause(
    "licence: seats", lambda s: s.market_ops.licence_seats(s.v.pick(*_PRODUCTS, "Photo Suite", "DB-Studio"), s.v(1, 90))
)
cause(
    "rolled back",
    lambda s: s.market_ops.rollback(
        s.v.pick("checkout", "search-api", "price engine"), [s.v.text() for _ in range(s.v(0, 4))]
    ),
)
cause("host locked", lambda s: s.market_ops.lock(s.v.pick(*_HOSTS), who(s), s.v.when()))
cause(
    "not a number",
    lambda s: s.market_ops.parse(
        s.v.pick("a lot", "12,5", "", "n/a", s.v.word()), s.v.pick("line 3", "price", "unit price", s.v.path())
    ),
)
cause(
    "schedule",
    lambda s: s.market_ops.schedule(
        s.v.pick("nightly", "clean up", "re-index"), s.v.pick("@daily", "* * *", "every hour", "0 5")
    ),
)
cause("copy", lambda s: s.market_ops.from_default(s.v.path()))
cause(
    "several",
    lambda s: s.market_ops.several(
        {s.v.pick("nightly", "clean up", "re-index", s.v.word()): s.v.pick(*_HOSTS) for _ in range(s.v(1, 5))}
    ),
)
