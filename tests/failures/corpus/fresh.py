"""Causes written after the algorithm was done. What they showed at first sight is told in docs/decisions/causes.md."""

from __future__ import annotations

import base64
import os
from typing import Any

from tests.failures.corpus.collect import Cause

CAUSES: list[Cause] = []


def cause(name: str, call: Any) -> None:
    CAUSES.append(Cause(name, call))


def one_of(number: int, *calls: Any) -> Any:
    return calls[number % len(calls)]


cause(
    "pod evicted",
    lambda s: s.depot_jobs.pod(
        f"{s.v.word()}-{s.v.hex(9)}-{s.v.base62(5).lower()}", f"ip-{s.v.ipv4().replace('.', '-')}.ec2.internal"
    ),
)
cause(
    "image not pulled",
    lambda s: s.depot_jobs.image(
        f"registry.example.com:5000/{s.v.word()}/{s.v.word()}:{s.v(0, 9)}.{s.v(0, 20)}", "sha256:" + s.v.hex(64)
    ),
)
cause(
    "token expired",
    lambda s: s.depot_jobs.token(
        ".".join(base64.urlsafe_b64encode(os.urandom(s.v(12, 40))).decode() for _ in range(3))
    ),
)
cause(
    "took too long",
    lambda s: s.depot_jobs.deadline(
        s.v.pick("1h23m", "PT5M", f"{s.v()}ms", "2 days, 3:04:05"), s.v.pick("10s", "5 min", "1h")
    ),
)
cause("price not plausible", lambda s: s.depot_jobs.price(s.v.amount(), s.v.pick("EUR", "USD", "CHF")))
cause("crate too heavy", lambda s: s.depot_jobs.weigh(s.v.pick(s.v.sku(), s.v.text(), s.v()), s.v(1, 9999) / 7))
cause("cannot be delivered", lambda s: s.depot_jobs.chinese(s.v(), s.v.pick("北京", "上海", "广州")))
cause("not paid", lambda s: s.depot_jobs.chinese_paid(s.v.pick(s.v(), s.v.ulid())))
cause("import failed", lambda s: s.depot_jobs.multiline([(s.v(), s.v.text()) for _ in range(s.v(1, 6))]))
cause(
    "refused with values",
    lambda s: s.depot_jobs.key_values(order=s.v.ulid(), by=s.v.mail(), at=s.v.when()),
)
cause("pod gone", lambda s: s.depot_jobs.gone(s.v.hex()))
cause("depot error", lambda s: s.depot_jobs.gone_or(s.v.text()))
cause(
    "provider: quota",
    lambda s: s.depot_jobs.provider(
        {"error": {"message": f"Quota exceeded for project {s.v.word()}-{s.v()}: limit {s.v()}"}}
    ),
)
cause("provider: key", lambda s: s.depot_jobs.provider({"error": {"message": f"Invalid API key sk-{s.v.base62(20)}"}}))
cause(
    "provider: HTTP 502",
    lambda s: s.depot_jobs.provider({"error": {"message": f"status code: 502, request id: {s.v.uuid()}"}}),
)
cause(
    "provider: HTTP 503",
    lambda s: s.depot_jobs.provider({"error": {"message": f"status code: 503, request id: {s.v.uuid()}"}}),
)
cause("short scan", lambda s: s.depot_jobs.scanner(os.urandom(s.v(0, 7))))
cause("bad label", lambda s: s.depot_jobs.label(s.v.text() + "!"))
cause("bad manifest", lambda s: s.depot_jobs.manifest(s.v.pick("<a>", "", "<a></b>", f"<{s.v.word()}", s.v.text())))
cause("not gzip", lambda s: s.depot_jobs.unzip(s.v.text().encode()))
cause("no address", lambda s: s.depot_jobs.address(s.v.pick(s.v.name(), "1.2.3", "::g", s.v.text())))
cause("not restored", lambda s: s.depot_jobs.restore(b"\xff" + s.v.text().encode()))
cause("no plugin", lambda s: s.depot_jobs.plugin(s.v.word()))
cause("nothing to copy", lambda s: s.depot_jobs.copy(s.v.path(), "/tmp/" + s.v.word()))
cause("no such lane", lambda s: s.depot_jobs.lane(s.v.pick(7, "SOUTH", None, s.v.word())))
cause("no such zone", lambda s: s.depot_jobs.zone(f"Europe/{s.v.word().title()}"))
cause("unknown field", lambda s: s.depot_jobs.crate(**{s.v.word(): 1}))
cause("open quote", lambda s: s.depot_jobs.lines(f'{s.v.text()},"{s.v.word()}"{s.v.word()}'))
cause(
    "mail refused",
    lambda s: one_of(s.v.number, lambda p: s.depot_jobs.mail(p, s.v.mail()), s.depot_jobs.mail_daily)(
        s.servers.closed("smtp")
    ),
)
cause(
    "probe refused",
    lambda s: one_of(s.v.number, lambda p: s.depot_jobs.probe(p, s.v.path()), s.depot_jobs.probe_all)(
        s.servers.closed("probe")
    ),
)
cause("notify 500", lambda s: s.depot_jobs.notify(s.url(f"/status/500/{s.v.cus()}")))
cause("notify 404", lambda s: s.depot_jobs.notify(s.url(f"/status/404/{s.v.cus()}")))
cause("no place", lambda s: s.depot_jobs.route([{"name": s.v.name(), "place": None}] * s.v(1, 4)))
cause("late", lambda s: s.depot_jobs.late(s.v.pick(s.v(), s.v.sku()), s.v(2, 90)))
cause("held", lambda s: s.depot_jobs.held(s.v.ulid(), s.v.name()))
cause("told: belt", lambda s: f"belt {s.v(1, 40)} stopped: motor {s.v.sku()} at {s.v(80, 120)} °C")
cause("told: door", lambda s: f"door {s.v(1, 40)} did not close within {s.v(5, 60)} s")
