"""Causes as applications raise them, written before the algorithm was, of which only the score was looked at.

What one cause is was judged as an operator would who wants one line for one thing to mend. Left out as matters of taste:
reasons looked up in a table by a provider's code, the same message in two languages, which stage of a pipeline found no
data, and words that stand for one of two ways (debit or credit, better or worse).
"""

from __future__ import annotations

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
    CAUSES.append(Cause(f"market {name}", call))


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
cause("method", lambda s: s.market_pay.route_method(s.v(), s.v.pick("Norway", "New Zealand", "CH", "Côte d'Ivoire")))
cause(
    "disputed",
    lambda s: s.market_pay.dispute(payment(s), who(s), s.v.pick(None, "", "never arrived", "wrong size", s.v.text())),
)
cause("reconcile", lambda s: s.market_pay.reconcile(s.v.when(), money(s), money(s)))

# -- stock
cause("reserve: empty", lambda s: s.market_stock.reserve(product(s), place(s), "de", False))
cause("reserve: locked", lambda s: s.market_stock.reserve(product(s), place(s), "de", True))
cause("stock out", lambda s: s.market_stock.out_of_stock(product(s), place(s), s.v(1, 99)))
cause("supplier silent", lambda s: s.market_stock.supplier_silent(s.v(), s.v(1, 60)))
cause(
    "field missing",
    lambda s: s.market_stock.missing_field(dict.fromkeys(some(s, s.market_stock.REQUIRED)[:-1], 1), s.v()),
)
cause(
    "fields missing", lambda s: s.market_stock.missing_fields(dict.fromkeys(some(s, s.market_stock.REQUIRED), 1), s.v())
)
cause("no service", lambda s: s.market_stock.no_service(s.v.pick(*s.market_stock.CARRIERS), s.v()))
cause(
    "parcel lost",
    lambda s: s.market_stock.lost(s.v.sku(), s.v.pick(*s.market_stock.CARRIERS), s.v.pick(None, *_CITIES)),
)
cause(
    "warehouse closed",
    lambda s: s.market_stock.closed(s.v.pick(*s.market_stock.HOLIDAYS, "2026-03-07", "2026-08-15"), place(s)),
)
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
cause(
    "permit",
    lambda s: s.market_mail.permit(who(s), s.v(), s.v.pick("delete orders", "refund", "export data", "see prices")),
)
cause("invite", lambda s: s.market_mail.invite(who(s), who(s), s.v(1, 5)))
cause("greet", lambda s: s.market_mail.greet(s.v.pick("Mr", "Mrs", "Dr. med.", "", "Prof. Dr.", "Sir"), who(s)))

# -- operations
cause("replica", lambda s: s.market_ops.replica(s.v(), s.v() / 7))
cause("heartbeat", lambda s: s.market_ops.unreachable(s.v()))
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
cause("host locked", lambda s: s.market_ops.lock(s.v.pick(*_HOSTS), who(s), s.v.when()))
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
