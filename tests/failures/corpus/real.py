"""Real exceptions of the libraries, and what kind of failure each is: reason, type, whether another attempt may help."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

CONNECT = ("connect", "network", True)
TIMEOUT = ("timeout", "timeout", True)
TLS = ("tls", "network", True)
INVALID = ("invalid_input", "param_error", True)
UNKNOWN = ("unknown_exception", "unknown", True)
DENIED = ("denied", "model_error", True)
THROTTLED = ("http_429", "network", True)
TERMINAL = ("http_4xx", "param_error", False)
REFUSED = ("http_4xx", "model_error", False)
BROKEN = ("http_5xx", "model_error", True)

# How it is made to happen, and what it is.
REAL: dict[str, tuple[Callable[[Any], Any], tuple[str, str, bool]]] = {
    "httpx 401": (lambda s: s.shop_web.fetch(s.url("/status/401")), REFUSED),
    "httpx 429": (lambda s: s.shop_web.fetch(s.url("/status/429")), THROTTLED),
    "httpx refused": (lambda s: s.shop_web.fetch(f"http://127.0.0.1:{s.servers.closed()}"), CONNECT),
    "httpx, loop, refused": (lambda s: s.shop_web.push_stock(f"http://127.0.0.1:{s.servers.closed()}"), CONNECT),
    "httpx slow": (lambda s: s.shop_web.fetch(s.url("/slow")), TIMEOUT),
    "httpx dropped": (lambda s: s.shop_web.fetch(s.url("/drop")), CONNECT),
    "httpx html": (lambda s: s.shop_web.fetch(s.url("/html")), INVALID),
    "httpx no certificate": (lambda s: s.clinic_net.secure(f"https://127.0.0.1:{s.servers.tls}/"), TLS),
    "requests refused": (lambda s: s.shop_web.download(f"http://127.0.0.1:{s.servers.closed()}"), CONNECT),
    "requests slow": (lambda s: s.shop_web.download(s.url("/slow")), TIMEOUT),
    "requests no scheme": (lambda s: s.shop_web.download("example.com"), INVALID),
    "aiohttp 500": (lambda s: s.clinic_net.poll_lab(s.url("/status/500")), BROKEN),
    "aiohttp refused": (lambda s: s.shop_web.crawl(f"http://127.0.0.1:{s.servers.closed()}"), CONNECT),
    "aiohttp slow": (lambda s: s.clinic_net.poll_lab(s.url("/slow")), TIMEOUT),
    "aiohttp dropped": (lambda s: s.clinic_net.sync_calendar(s.url("/drop")), CONNECT),
    "urllib 410": (lambda s: s.shop_web.old_style(s.url("/status/410")), TERMINAL),
    "urllib refused": (lambda s: s.shop_web.old_style(f"http://127.0.0.1:{s.servers.closed()}"), CONNECT),
    "urllib slow": (lambda s: s.shop_web.old_style(s.url("/slow")), TIMEOUT),
    "http.client dropped": (lambda s: s.clinic_net.raw(s.servers.http, "/drop"), CONNECT),
    "socket: no such host": (lambda s: s.clinic_net.lookup_host("lab.invalid"), CONNECT),
    "ssl against a plain server": (lambda s: s.clinic_net.handshake(s.servers.redis), CONNECT),
    "s3 no such key": (lambda s: s.shop_cloud.read_object(s.url("/aws-xml/404/NoSuchKey/"), "b", "k"), TERMINAL),
    "s3 slow down": (lambda s: s.shop_cloud.read_object(s.url("/aws-xml/503/SlowDown/"), "b", "k"), THROTTLED),
    "s3 refused": (lambda s: s.shop_cloud.read_object(f"http://127.0.0.1:{s.servers.closed()}", "b", "k"), CONNECT),
    "s3 slow": (lambda s: s.shop_cloud.read_object(s.url("/slow/"), "b", "k"), TIMEOUT),
    "dynamodb condition": (
        lambda s: s.shop_cloud.reserve(s.url("/aws-json/400/ConditionalCheckFailedException/"), "k"),
        TERMINAL,
    ),
    "dynamodb throughput": (
        lambda s: s.shop_cloud.reserve(s.url("/aws-json/400/ProvisionedThroughputExceededException/"), "k"),
        THROTTLED,
    ),
    "openai quota": (lambda s: s.shop_llm.describe(s.url("/openai/quota/x"), "p"), THROTTLED),
    "openai context": (lambda s: s.shop_llm.describe(s.url("/openai/context/x"), "p"), TERMINAL),
    "openai refused": (lambda s: s.shop_llm.describe(f"http://127.0.0.1:{s.servers.closed()}/v1", "p"), CONNECT),
    "openai slow": (lambda s: s.shop_llm.describe(s.url("/slow"), "p"), TIMEOUT),
    "psycopg unique": (lambda s: s.shop_db.add_customer(s.postgres, 5, "first@example.com"), INVALID),
    "psycopg no such table": (lambda s: s.shop_db.execute(s.postgres, "select 1 from nowhere"), INVALID),
    "psycopg cancelled": (lambda s: s.shop_db.slow_report(s.postgres, 2), TIMEOUT),
    "psycopg refused": (
        lambda s: s.shop_db.weekly_report(f"postgresql://u:p@127.0.0.1:{s.servers.closed()}/x"),
        CONNECT,
    ),
    "psycopg deadlock": (
        lambda s: s.shop_db.execute(s.postgres, "do $$ begin raise sqlstate '40P01'; end $$"),
        ("conflict", "unknown", True),
    ),
    "psycopg shutdown": (
        lambda s: s.shop_db.execute(s.postgres, "do $$ begin raise sqlstate '57P01'; end $$"),
        CONNECT,
    ),
    "asyncpg unique": (lambda s: s.clinic_net.patients(s.postgres, "insert into patient values (1, $1)", "x"), INVALID),
    "asyncpg no such column": (lambda s: s.clinic_net.patients(s.postgres, "select nothing from patient"), INVALID),
    "asyncpg bad argument": (
        lambda s: s.clinic_net.patients(s.postgres, "select * from patient where id = $1", "x"),
        INVALID,
    ),
    "asyncpg refused": (lambda s: s.clinic_net.beds(f"postgresql://u:p@127.0.0.1:{s.servers.closed()}/x"), CONNECT),
    "alchemy unique": (lambda s: s.shop_db.alchemy_import("sqlite://", "x"), INVALID),
    "alchemy no such table": (lambda s: s.shop_db.through_alchemy("sqlite://", "select 1 from nowhere"), INVALID),
    "alchemy cancelled": (
        lambda s: s.shop_db.through_alchemy(
            s.postgres.replace("postgresql:", "postgresql+psycopg:"), "do $$ begin raise sqlstate '57014'; end $$"
        ),
        TIMEOUT,
    ),
    "sqlite no such table": (lambda s: s.shop_db.lite(":memory:", "select 1 from nowhere"), INVALID),
    "sqlite unique": (lambda s: s.shop_db.lite_twice("x"), INVALID),
    "redis refused": (lambda s: s.clinic_net.look_up(s.servers.closed(), "k"), CONNECT),
    "redis slow": (lambda s: s.clinic_net.look_up(s.servers.redis, "slow"), TIMEOUT),
    "redis no auth": (lambda s: s.clinic_net.look_up(s.servers.redis, "private"), DENIED),
    "redis loading": (lambda s: s.clinic_net.look_up(s.servers.redis, "moved"), ("unavailable", "model_error", True)),
    "redis wrong type": (lambda s: s.clinic_net.look_up(s.servers.redis, "hash"), UNKNOWN),
    "pydantic": (lambda s: s.shop_files.check_order({}), INVALID),
    "json": (lambda s: s.shop_files.parse_order("{"), INVALID),
    "unicode": (lambda s: s.clinic_records.decode(b"\xff"), INVALID),
    "django validation": (lambda s: s.clinic_records.admit("x"), INVALID),
    "django unique": (lambda s: s.clinic_records.django_twice("x"), INVALID),
    "pandas column": (lambda s: s.clinic_records.column({"a": [1]}, "b"), UNKNOWN),
    "program too slow": (lambda s: s.shop_files.convert(["sleep", "5"], timeout=0.05), TIMEOUT),
    "program failed": (lambda s: s.shop_files.convert([sys.executable, "-Sc", "import sys; sys.exit(3)"]), UNKNOWN),
    "no such file": (lambda s: s.shop_files.read_order("/nowhere"), UNKNOWN),
    "hurried": (lambda s: s.clinic_net.hurry(1), TIMEOUT),
    "key error": (lambda s: s.harbour_cranes.read_settings(""), UNKNOWN),
}
