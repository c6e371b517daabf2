"""Served stores to look at, and the addresses of all pages in them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from redrive import App, Context, Fail
from redrive.kernel.operation import Action
from redrive.ops.access import Caller, Role
from redrive.ops.failures import parse_filter
from redrive.ops.operations.lifecycle import How
from redrive.settings import load_settings
from tests.browser.catalogue import add_catalogue, furnish_catalogue, with_catalogue
from tests.browser.farm import add_farm, furnish_farm, with_farm
from tests.console.conftest import HOME, work

LONG = "x" * 90 + "<b>" + "W" * 90
WORDS = "a/b=c&d?" * 20
TURNED = "\u202egnp.exe\u200b" * 5


@dataclass(slots=True, frozen=True)
class World:
    """A store that is served at ``base``; ``pages`` are the addresses of all its pages, by name."""

    base: str
    pages: dict[str, str]


async def world(client: httpx.AsyncClient) -> World:
    async def first(path: str, pattern: str) -> str:
        found = re.search(pattern, (await client.get(HOME + path)).text)
        assert found, f"{path} has no {pattern}"
        return found[1]

    task = await first("/failures", r'href="/ops/queue(/tasks/[0-9a-f-]{36})"')
    cause = await first("/failures", r'href="/ops/queue(/causes/[0-9a-f]{16})"')
    operation = await first("/operations", r'href="/ops/queue(/operations/[0-9a-f-]+)"')
    pages = await paid(first)
    ended = r'href="/ops/queue(/operations/[0-9a-f-]+)">retry</a>(?:(?!</tr>).)*?stopped'
    if stopped := re.search(ended, (await client.get(HOME + "/operations")).text, re.DOTALL):
        pages["operation with outcomes"] = stopped[1]
    projection = await first("/outbox", r'href="/ops/queue(/outbox/(?!partners)[\w.:-]+)"')
    pages |= {
        "overview": "",
        "a day": "?period=24h",
        "alerts": "/alerts",
        "failures": "/failures",
        "filtered": "/failures?failureType=timeout",
        "searched": "/failures?q=storage",
        "preview": "/failures/preview",
        "nothing": "/failures/preview?deadReason=non_retryable&failureType=network",
        "cause": cause,
        "dead letters": "/dead-letters",
        "tasks": "/tasks",
        "task": task,
        "operations": "/operations",
        "operation": operation,
        "approvals": "/approvals",
        "audit": "/audit",
        "verify": "/audit/verify",
        "prune": "/audit/prune?olderThanDays=0",
        "queues": "/queues",
        "workers": "/workers",
        "schedules": "/schedules",
        "settings": "/settings",
        "projections": "/outbox",
        "projection": projection,
        "sink down": "/outbox/partners?period=24h",
        "replay": f"{projection}/replay",
        "documents": f"{projection}/search?q=5",
        "find": "/find?q=episode",
        "who": "/who",
    }
    return World(str(client.base_url).rstrip("/"), pages)


async def paid(first: Callable[[str, str], Awaitable[str]]) -> dict[str, str]:
    """Returns the addresses of what customers pay for: see ``farm``."""

    def batch(name: str) -> str:
        return r'href="/ops/queue(/batches/[0-9a-f-]{36})"[^>]*>(?:<span[^>]*>)?' + name

    settled = await first("/ledger/studio?before=", r'href="/ops/queue(/batches/[0-9a-f-]{36})"')
    endpoint = await first("/webhooks/endpoints?account=studio", r'href="/ops/queue(/webhooks/endpoints/ep_[0-9a-f]+)"')
    return {
        "batches": "/batches",
        "batch": await first("/batches", batch("Cut of episode 7")),
        "processing": await first("/batches", batch("The whole film")),
        "provider down": await first("/batches", batch("Teaser at")),
        "too little": await first("/batches", batch("More than")),
        "settled": settled,
        "failed items": f"{settled}?state=failed&failureType=timeout",
        "accounts": "/ledger",
        "account": "/ledger/studio?at=1h",
        "empty account": "/ledger/idle",
        "books": "/ledger/verify",
        "endpoints": "/webhooks/endpoints",
        "endpoint": endpoint,
        "new endpoint": "/webhooks/add",
        "deliveries": "/webhooks/deliveries",
        "delivery": await first(endpoint, r'href="/ops/queue(/webhooks/deliveries/[0-9a-f-]{36})"'),
    }


async def make_hostile(file: Path) -> App:
    """An application whose names and texts want to break the page."""
    made = App(settings=with_catalogue(with_farm(load_settings(url=f"sqlite:///{file}"))), name="hostile")
    add_farm(made)
    add_catalogue(made, file.parent, "P" * 100)

    @made.task("K" * 100, max_attempts=1)
    async def run(ctx: Context, **payload: str) -> None:
        raise Fail("C" * 60, f"{LONG} {WORDS} {TURNED}")

    await made.enqueue(
        "K" * 100,
        {"a": LONG, "b": WORDS * 20, "c": TURNED},
        scope=LONG[:200],
        trace_id=WORDS[:200],
        group=LONG[:200],
    )
    await work(made)
    operator = await made.operator(Caller("N" * 100, Role.ADMIN))
    await operator.operations.begin(
        Action.RETRY, parse_filter(kind="K" * 100), reason=WORDS * 3, how=How(fixed=LONG, idempotent=False)
    )
    await work(made)
    await operator.control.pause("kind", "K" * 100, LONG)
    [cause] = (await operator.causes.list(limit=1)).causes
    await operator.causes.annotate(cause.row.fingerprint, None, note=LONG, owner="O" * 90)
    await made.enqueue("K" * 100, {"a": LONG}, scope=LONG[:200])
    await furnish_farm(made, name=LONG, label=LONG[:90] + "<b>")
    await furnish_catalogue(made, 1, "P" * 100, LONG)
    return made
