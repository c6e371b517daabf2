"""Causes that were kept aside while the algorithm was tuned."""

from __future__ import annotations

from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(name, call))


def one_of(number: int, *calls: Any) -> Any:
    return calls[number % len(calls)]


for _status in (400, 404, 500):
    cause(f"aiohttp {_status}", lambda s, n=_status: s.clinic_net.poll_lab(s.url(f"/status/{n}/{s.v.cus()}")))
cause(
    "aiohttp refused",
    lambda s: one_of(s.v.number, s.clinic_net.poll_lab, s.clinic_net.sync_calendar)(
        f"http://127.0.0.1:{s.servers.closed('lab')}/{s.v()}"
    ),
)
cause("aiohttp slow", lambda s: s.clinic_net.poll_lab(s.url(f"/slow/{s.v.word()}")))
cause("aiohttp html", lambda s: s.clinic_net.sync_calendar(s.url(f"/html/{s.v()}")))
cause("aiohttp dropped", lambda s: s.clinic_net.sync_calendar(s.url(f"/drop/{s.v()}")))
cause("untrusted certificate", lambda s: s.clinic_net.secure(f"https://127.0.0.1:{s.servers.tls}/{s.v()}"))
cause("untrusted certificate, urllib", lambda s: s.clinic_net.secure_old(f"https://127.0.0.1:{s.servers.tls}/{s.v()}"))
cause("not tls at all", lambda s: s.clinic_net.secure(f"https://127.0.0.1:{s.servers.redis}/{s.v()}"))
cause(
    "redis refused",
    lambda s: one_of(s.v.number, s.clinic_net.remember, lambda p, k, _: s.clinic_net.look_up(p, k))(
        s.servers.closed("redis"), s.v.sku(), s.v.text()
    ),
)
cause("redis wrong type", lambda s: s.clinic_net.remember(s.servers.redis, f"hash:{s.v()}", "x"))
cause("redis full", lambda s: s.clinic_net.remember(s.servers.redis, f"full:{s.v.cus()}", "x"))
cause("redis no auth", lambda s: s.clinic_net.remember(s.servers.redis, f"private:{s.v.hex()}", "x"))
cause("redis slow", lambda s: one_of(s.v.number, s.clinic_net.look_up)(s.servers.redis, f"slow:{s.v()}"))
cause("no such host", lambda s: s.clinic_net.lookup_host("lab.invalid"))
cause("no such other host", lambda s: s.clinic_net.lookup_host("pharmacy.invalid"))
cause("dropped, plain", lambda s: s.clinic_net.raw(s.servers.http, f"/drop/{s.v()}"))
cause("asyncpg unique", lambda s: s.clinic_net.patients(s.postgres, "insert into patient values (1, $1)", s.v.name()))
cause("asyncpg no such column", lambda s: s.clinic_net.patients(s.postgres, f"select {s.v.word()} from patient"))
cause(
    "asyncpg bad argument",
    lambda s: s.clinic_net.patients(s.postgres, "select * from patient where id = $1", s.v.name()),
)
cause(
    "asyncpg refused",
    lambda s: one_of(s.v.number, s.clinic_net.beds, lambda u: s.clinic_net.patients(u, "select 1"))(
        f"postgresql://u:p@127.0.0.1:{s.servers.closed('beds')}/{s.v.word()}"
    ),
)
cause("hurried", lambda s: s.clinic_net.hurry(s.v()))
cause("all wards", lambda s: s.clinic_net.all_wards([s.v.word() for _ in range(s.v(1, 5))]))
cause("not a zip", lambda s: s.clinic_records.unpack(s.v.text().encode(), s.v.word()))
cause("zip without member", lambda s: s.clinic_records.unpack(s.clinic_records.packed(), s.v.path()))
cause("dose no number", lambda s: s.clinic_records.dose(s.v.text()))
cause("no such column", lambda s: s.clinic_records.column({"a": [1, 2]}, s.v.pick(s.v.word(), s.v())))
cause("empty table", lambda s: s.clinic_records.table(s.v.pick("", "\n", "  \n\n")))
cause("ragged table", lambda s: s.clinic_records.table("a,b\n1,2\n" * s.v(1, 9) + "1,2,3,4\n"))
cause("merge without column", lambda s: s.clinic_records.merge({"a": [1]}, {"b": [1]}, s.v.word()))
cause("columns of other lengths", lambda s: s.clinic_records.widths({"a": s.v.many(1, 4), "b": s.v.many(5, 9)}))
cause("no date", lambda s: s.clinic_records.birth(s.v.pick(s.v.text(), "2026-13-01", "1.1.2026", s.v.uuid())))
cause("other date format", lambda s: s.clinic_records.parse_when(s.v.pick(s.v.text(), "2026-01-01", s.v.name())))
cause("no uuid", lambda s: s.clinic_records.number(s.v.pick(s.v.hex(), s.v.cus(), s.v.text())))
cause("django bad mail", lambda s: s.clinic_records.admit(s.v.pick(s.v.name(), s.v.path(), "a@b")))
cause("django too old", lambda s: s.clinic_records.age(s.v(121, 999)))
cause("django unique", lambda s: s.clinic_records.django_twice(s.v.name()))
cause("django no such table", lambda s: s.clinic_records.django_missing(s.v.word()))
cause("django denied", lambda s: s.clinic_records.forbidden(s.v.name()))
cause("no such setting", lambda s: s.clinic_records.settings_of("[lab]\na = 1\n", s.v.word()))
cause("no section", lambda s: s.clinic_records.settings_of(f"{s.v.word()} = 1\n", "a"))
cause("not utf-8", lambda s: s.clinic_records.decode(s.v.text().encode() + b"\xff" + bytes([128 + s.v(0, 60)])))
cause(
    "ward has no bed",
    lambda s: s.clinic_ward.admit(
        s.v.pick(s.v.cus("pat"), s.v.name(), f"#{s.v()}"), s.v.pick("A3", "north", s.v.word(), f"'{s.v.text()}'")
    ),
)
cause("slot is taken", lambda s: s.clinic_ward.book(s.v.when(), s.v.name().title(), s.v.when()))
cause("doctor does not work", lambda s: s.clinic_ward.book(s.v.when(), s.v.name().title(), None))
cause("not plausible", lambda s: s.clinic_ward.lab(s.v.ulid(), s.v.pick(s.v.amount(), "1e-7", "nan", None)))
cause("unit unknown", lambda s: s.clinic_ward.lab_unit(s.v.hex(), s.v.pick("mg/dl", "mmol/L", "'g'", "µg")))
cause(
    "device silent",
    lambda s: s.clinic_ward.scan(
        s.v.pick(s.v.ipv6(), f"scanner-{s.v(1, 9)}", f"{s.v.word()}.clinic.example.org:104"),
        [s.v.path() for _ in range(s.v(1, 6))],
    ),
)
for _status in (402, 409):
    cause(
        f"insurer {_status}", lambda s, n=_status: s.clinic_ward.insurer(n, s.v.pick(s.v.cus(), s.v.s3(), s.v.uuid()))
    )
cause(
    "insurer refused",
    lambda s: s.clinic_ward.insurer_json(
        s.v.pick({"id": s.v.uuid(), "amount": s.v()}, {"id": s.v.cus(), "codes": s.v.many()})
    ),
)
cause("still here", lambda s: s.clinic_ward.discharge(s.v.name()))
cause("transfer interrupted", lambda s: s.clinic_ward.transfer(s.v.name(), s.v.ipv4()))
cause("drug must not be given", lambda s: s.clinic_ward.prescribe(s.v.word(), s.v.cus("pat")))
cause("no signal", lambda s: s.clinic_ward.remind(f"+49 {s.v(100, 999)} {s.v()}"))
cause("too many beds", lambda s: s.clinic_ward.assertion(s.v()))
cause("no insurance", lambda s: s.clinic_ward.missing({s.v.word(): 1}))
cause("no insurance and no employer", lambda s: s.clinic_ward.missing_later({s.v.word(): 1}))
cause("told: lamp", lambda s: f"lamp {s.v.sku()} of room {s.v()} broke at {s.v.when()}")
cause("told: filter", lambda s: f"filter of room {s.v()} is clogged since {s.v.when()}")
