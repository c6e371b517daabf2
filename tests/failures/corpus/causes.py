"""The causes that the algorithm was made with."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []
FOLDER = Path(tempfile.mkdtemp(prefix="redrive-corpus-"))


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(name, call))


def one_of(number: int, *calls: Any) -> Any:
    return calls[number % len(calls)]


# -- HTTP -----------------------------------------------------------------------------------------------------------

for _status in (400, 403, 404, 500, 503):
    cause(
        f"httpx {_status}",
        lambda s, n=_status: s.shop_web.fetch(
            s.url(f"/status/{n}/orders/{s.v.pick(s.v.cus(), s.v(), s.v.uuid())}?at={s.v.when().replace(' ', '+')}")
        ),
    )
for _status in (401, 404, 502):
    cause(
        f"requests {_status}", lambda s, n=_status: s.shop_web.download(s.url(f"/status/{n}/{s.v.word()}/{s.v.ulid()}"))
    )
for _status in (404, 410):
    cause(f"urllib {_status}", lambda s, n=_status: s.shop_web.old_style(s.url(f"/status/{n}/{s.v.hex()}")))
cause("httpx 404 in another kind", lambda s: s.shop_web.sync_orders(s.url(f"/status/404/{s.v()}")))
for _port in "ab":
    cause(
        f"httpx refused by {_port}",
        lambda s, p=_port: one_of(s.v.number, s.shop_web.fetch, s.shop_web.sync_orders, s.shop_web.refresh_prices)(
            f"http://127.0.0.1:{s.servers.closed(p)}/{s.v.path()}"
        ),
    )
cause(
    "requests refused",
    lambda s: one_of(s.v.number, s.shop_web.download, s.shop_web.mirror)(
        f"http://127.0.0.1:{s.servers.closed()}/{s.v()}"
    ),
)
cause("urllib refused", lambda s: s.shop_web.old_style(f"http://127.0.0.1:{s.servers.closed()}/{s.v.word()}"))
cause("httpx slow", lambda s: one_of(s.v.number, s.shop_web.fetch, s.shop_web.sync_orders)(s.url(f"/slow/{s.v()}")))
cause("requests slow", lambda s: s.shop_web.download(s.url(f"/slow/{s.v.cus()}")))
cause("httpx html instead of json", lambda s: s.shop_web.fetch(s.url(f"/html/{s.v()}")))
cause("requests no scheme", lambda s: s.shop_web.download(f"{s.v.word()}.example.com/{s.v()}"))
cause("requests around and around", lambda s: s.shop_web.mirror(s.url(f"/around/{s.v()}")))
cause("httpx dropped", lambda s: s.shop_web.fetch(s.url(f"/drop/{s.v.hex()}")))

# -- cloud ----------------------------------------------------------------------------------------------------------

for _code, _status in (("NoSuchKey", 404), ("NoSuchBucket", 404), ("AccessDenied", 403), ("SlowDown", 503)):
    cause(
        f"s3 {_code}",
        lambda s, c=_code, n=_status: s.shop_cloud.read_object(s.url(f"/aws-xml/{n}/{c}/"), s.v.word(), s.v.path()),
    )
for _code in ("ConditionalCheckFailedException", "ProvisionedThroughputExceededException"):
    cause(f"dynamodb {_code}", lambda s, c=_code: s.shop_cloud.reserve(s.url(f"/aws-json/400/{c}/"), s.v.ulid()))
cause(
    "s3 refused", lambda s: s.shop_cloud.read_object(f"http://127.0.0.1:{s.servers.closed()}", s.v.word(), s.v.path())
)
for _what in ("quota", "rate", "context", "key", "overloaded"):
    cause(f"openai {_what}", lambda s, w=_what: s.shop_llm.describe(s.url(f"/openai/{w}/{s.v.base62()}"), s.v.text()))
cause(
    "openai refused",
    lambda s: one_of(s.v.number, s.shop_llm.describe, s.shop_llm.translate)(
        f"http://127.0.0.1:{s.servers.closed()}/{s.v.word()}", s.v.text()
    ),
)

# -- databases ------------------------------------------------------------------------------------------------------

cause("psycopg unique", lambda s: s.shop_db.add_customer(s.postgres, s.v(2), "first@example.com"))
cause("psycopg not null", lambda s: s.shop_db.add_customer(s.postgres, s.v(2), None))
cause("psycopg foreign key", lambda s: s.shop_db.add_purchase(s.postgres, s.v(2), s.v()))
cause("psycopg out of range", lambda s: s.shop_db.add_purchase(s.postgres, 10_000_000_000 + s.v(), 1))
cause("psycopg no such table", lambda s: s.shop_db.execute(s.postgres, f"select {s.v()} from {s.v.word()}"))
cause("psycopg syntax", lambda s: s.shop_db.execute(s.postgres, f"selec {s.v.word()}"))
cause("psycopg statement timeout", lambda s: s.shop_db.slow_report(s.postgres, 1 + s.v.number / 10))
cause(
    "psycopg refused",
    lambda s: one_of(s.v.number, s.shop_db.weekly_report, s.shop_db.nightly_totals)(
        f"postgresql://u:p@127.0.0.1:{s.servers.closed('pg')}/{s.v.word()}"
    ),
)
cause(
    "alchemy unique",
    lambda s: s.shop_db.alchemy_import(s.postgres.replace("postgresql:", "postgresql+psycopg:"), s.v.sku()),
)
cause(
    "alchemy no such table",
    lambda s: s.shop_db.through_alchemy("sqlite://", f"select * from {s.v.word()} where id = :id", id=s.v()),
)
cause(
    "alchemy refused",
    lambda s: one_of(s.v.number, s.shop_db.through_alchemy, s.shop_db.alchemy_import)(
        f"postgresql+psycopg://u:p@127.0.0.1:{s.servers.closed('pg')}/x", "select 1"
    ),
)
cause("sqlite no such table", lambda s: s.shop_db.lite(":memory:", f"select {s.v()} from {s.v.word()}"))
cause("sqlite syntax", lambda s: s.shop_db.lite(":memory:", f"selec {s.v()}"))
cause("sqlite unique", lambda s: s.shop_db.lite_twice(s.v.sku()))
cause("sqlite locked", lambda s: s.shop_db.lite_locked(str(FOLDER / f"{s.v.hex()}.db")))

# -- files ----------------------------------------------------------------------------------------------------------

cause("no such file", lambda s: s.shop_files.read_order(s.v.path() + s.v.hex()))
cause("not a folder", lambda s: s.shop_files.read_order(f"{sys.executable}/{s.v.word()}"))
cause("is a folder", lambda s: s.shop_files.read_order(s.v.pick("/", "/usr", "/tmp", "/etc", "/usr/lib")))
cause("name too long", lambda s: s.shop_files.store_order("/tmp/" + s.v.word() * s.v(100, 200)))
cause("no folder to write to", lambda s: s.shop_files.store_order("/nowhere" + s.v.path()))
cause("link to itself", lambda s: s.shop_files.link_to_itself(str(FOLDER), s.v.hex()))
cause("not json", lambda s: s.shop_files.parse_order(s.v.pick("{" + s.v.word(), "", s.v.text(), '{"a": 1} x', "[1,")))
cause("stock counted in words", lambda s: s.shop_files.check_stock({"counts": {s.v.name(): s.v.word()}}))
cause("shelf without a count", lambda s: s.shop_files.check_stock({"shelves": {s.v.word(): [{"sku": s.v.sku()}]}}))
cause("voucher", lambda s: s.shop_files.redeem(s.v.pick(s.v.cus(), s.v.hex(), f"{s.v.name()}_{s.v.name()}")))
cause("class made at run time", lambda s: s.shop_files.missing(s.v.pick(s.v.name(), s.v.word())))
cause(
    "order without customer",
    lambda s: s.shop_files.check_order({"lines": [{"sku": s.v.sku(), "count": n} for n in range(s.v(0, 4))]}),
)
cause(
    "count no number",
    lambda s: s.shop_files.check_order(
        {
            "customer": s.v.name(),
            "lines": [{"sku": s.v.sku(), "count": 1}] * s.v(0, 5) + [{"sku": s.v.sku(), "count": s.v.word()}],
        }
    ),
)
cause(
    "program failed", lambda s: s.shop_files.convert([sys.executable, "-Sc", f"import sys; sys.exit(3) # {s.v.path()}"])
)
cause(
    "program killed",
    lambda s: s.shop_files.convert([sys.executable, "-Sc", f"import os; os.kill(os.getpid(), 9) # {s.v()}"]),
)
cause("program too slow", lambda s: s.shop_files.convert(["sleep", str(5 + s.v.number)], timeout=0.05))
cause("no such program", lambda s: s.shop_files.convert([f"convert-{s.v.word()}", s.v.path()]))

# -- the application's own -----------------------------------------------------------------------------------------

cause(
    "customer does not exist",
    lambda s: s.shop_orders.find_customer(s.v.pick(s.v.cus(), s.v(), s.v.uuid(), s.v.name(), s.v.mail())),
)
cause("invoice does not exist", lambda s: s.shop_orders.find_both(s.v.cus(), s.v.pick(s.v.ulid(), s.v.sku())))
cause("no such customer", lambda s: s.shop_orders.find_both(s.v.pick(s.v.cus(), s.v.name(), repr(s.v.text())), None))
cause("copy failed", lambda s: s.shop_orders.upload(s.v.path(), s.v.s3()))
cause("no route", lambda s: s.shop_orders.route(s.v.pick(s.v.ipv6(), s.v.ipv4(), f"[{s.v.ipv6()}]:443")))
cause("rows out of range", lambda s: s.shop_orders.check_rows(s.v.many()))
cause("commit not on branch", lambda s: s.shop_orders.check_commit(s.v.hex(), f"{s.v.word()}/{s.v.word()}"))
cause("may not refund", lambda s: s.shop_orders.allow(s.v.name(), "refund"))
cause("may not see", lambda s: s.shop_orders.allow(s.v.name(), "see"))
cause("locked when shipped", lambda s: s.shop_orders.ship(s.v.pick(s.v(), s.v.sku(), s.v.ulid())))
cause("locked when billed", lambda s: s.shop_orders.bill(s.v.pick(s.v(), s.v.sku(), s.v.ulid())))
cause("after closing time", lambda s: s.shop_orders.refuse(s.v.pick(s.v(), s.v.sku())))
cause("waits for payment", lambda s: s.shop_orders.wait_for(s.v(), "payment"))
cause("waits for parcel number", lambda s: s.shop_orders.wait_for(s.v.sku(), "parcel"))
cause("provider said 404", lambda s: s.shop_orders.provider_said(f"HTTP 404 for {s.v.s3()}"))
cause("provider said 403", lambda s: s.shop_orders.provider_said(f"HTTP 403 for {s.v.s3()}"))
cause("provider said errno 2", lambda s: s.shop_orders.provider_said(f"[Errno 2] copying {s.v.path()}"))
cause("provider said errno 13", lambda s: s.shop_orders.provider_said(f"[Errno 13] copying {s.v.path()}"))
cause("due before order", lambda s: s.shop_orders.due(s.v.when()))
cause("quota used", lambda s: s.shop_orders.quota(s.v.amount(), s.v.pick("100", "2.5", "1,000")))
cause("declared cause", lambda s: s.shop_orders.declared("warehouse", s.v.text()))
cause("other declared cause", lambda s: s.shop_orders.declared("bank", s.v.text()))
cause("line without price", lambda s: s.shop_orders.total({"lines": [{"count": 1, s.v.word(): 1}] * s.v(1, 4)}))
cause("nobody at the table", lambda s: s.shop_orders.discount({"total": s.v(), "people": 0}))
cause("no such line", lambda s: s.shop_orders.nth(s.v.many(), s.v(50, 99)))
cause("customer is none", lambda s: s.shop_orders.mail(s.v.pick(None, 17, "x", [])))
cause("leaf too short", lambda s: s.shop_orders.walk({"leaf": s.v.many()}, s.v.depth))
cause("endless recursion", lambda s: s.shop_orders.endless(s.v()))
cause("amount no number", lambda s: s.shop_orders.parse_amount(s.v.pick(s.v.text(), s.v.amount() + "x", "", "1 000")))
cause("cart no number", lambda s: s.shop_orders.cart(s.v.pick(s.v.word(), s.v.sku())))

# -- told by somebody else, without an exception -----------------------------------------------------------------------

cause(
    "told: disk full",
    lambda s: f"render of {s.v.path()} failed: disk {s.v.pick('sda1', 'nvme0n1')} is full after {s.v()} frames",
)
cause(
    "told: codec",
    lambda s: f"codec {s.v.pick('`h264`', chr(39) + 'av1' + chr(39))} is not supported by node {s.v.hex()}",
)
cause("told: HTTP 502", lambda s: f"upstream answered HTTP 502 after {s.v.amount()} ms")
cause("told: HTTP 504", lambda s: f"upstream answered HTTP 504 after {s.v.amount()} ms")
