"""Hostile data is harmless text on every page, in attributes, titles, addresses, streams and files."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from redrive import App, Context, Fail
from redrive.console.filters import PAGE_SIZE
from tests.console.conftest import HOME, console, done, page, text_of, work

pytestmark = pytest.mark.anyio
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{1337*7331}}</title></svg><!--"
MARKS = "abc\u202egnp.exe\u200b"


class Elements(HTMLParser):
    """Every element of a page, and every attribute that could run something."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[str | None] = []
        self.handlers: list[str] = []
        self.names: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        found = dict(attrs)
        if tag == "script":
            self.scripts.append(found.get("src"))
        self.handlers += [f"{tag} {name}" for name in found if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action", "formaction"):
            if (found.get(name) or "").strip().lower().startswith(("javascript:", "data:")):
                self.handlers.append(f"{tag} {name}")


def harmless(text: str) -> None:
    parsed = Elements()
    parsed.feed(text)
    assert all(src and src.startswith("/ops/queue/static/") for src in parsed.scripts)
    assert parsed.handlers == []
    assert "img" not in parsed.names
    assert str(1337 * 7331) not in text


async def planted(app: App) -> str:
    """A failed task with hostile text in every field that takes some; returns its id."""

    @app.task("EVIL", max_attempts=1)
    async def evil(ctx: Context, **payload: str) -> None:
        raise Fail("CODE", f"{EVIL} {MARKS}\x00\x1b[31m")

    long = "x" * 200_000
    task = await app.enqueue(
        "EVIL", {"a": EVIL, "b": MARKS, "c": long}, group=EVIL, scope=EVIL, trace_id=EVIL, idempotency_key=EVIL
    )
    await work(app)
    return str(task.id)


async def test_every_page_shows_it_as_text(app: App) -> None:
    async with console(app) as client:
        await done(client, "/who", {"name": EVIL}, "/who")
        task = await planted(app)
        await done(client, f"/tasks/{task}", {"do": "retry", "reason": EVIL}, f"/tasks/{task}")
        await work(app)
        await done(client, "/act/control.pause", {"target": "group", "name": EVIL, "reason": EVIL}, "/queues")
        cause = re.search(r"/causes/([0-9a-f]{16})", await page(client, "/failures"))
        assert cause
        where = f"/causes/{cause[1]}"
        await done(client, where, {"do": "note", "note": EVIL, "owner": EVIL}, where)
        for path in (
            "",
            "/failures",
            "/failures/preview",
            "/dead-letters",
            "/tasks",
            f"/tasks/{task}",
            where,
            "/audit",
            "/queues",
            "/workers",
            "/approvals",
            "/operations",
        ):
            text = await page(client, path)
            harmless(text)
            assert "\u202e" not in text, path
            assert "\x00" not in text, path
            assert len(text.encode()) < 200_000, path
        for name in ("q", "scope", "kind", "traceId", "status", "before", "page", "period", "fingerprint"):
            for path in ("", "/failures", "/tasks", "/audit", "/find", "/failures/preview"):
                harmless((await client.get(HOME + path, params={name: EVIL}, follow_redirects=True)).text)


async def test_what_only_looks_like_a_number_is_refused(app: App) -> None:
    async with console(app) as client:
        for number in ("²", "١", "9" * 5_000, "-1", "1.0", " 1"):
            for path, name in (("/failures/preview", "page"), ("/audit", "before")):
                answer = await client.get(HOME + path, params={name: number})
                assert answer.status_code == 422, (path, number[:5])


async def test_lists_of_long_messages_are_short(app: App) -> None:
    @app.task("LONG", max_attempts=1)
    async def long(ctx: Context) -> None:
        raise Fail("CODE", "\x01" * 3000)

    async with console(app) as client:
        words = "s" * 400
        await app.enqueue_many([{"kind": "LONG", "payload": {}, "scope": words, "trace_id": words}] * PAGE_SIZE)
        await work(app)
        for path in ("/failures", "/failures/preview", "/dead-letters", "/tasks"):
            text = await page(client, path)
            assert text.count("<time") >= PAGE_SIZE and len(text.encode()) < 150_000, (path, len(text.encode()))


async def test_what_turns_text_around_is_written_out_and_a_long_payload_is_behind_a_link(app: App) -> None:
    async with console(app) as client:
        task = await planted(app)
        text = await page(client, f"/tasks/{task}")
        assert "\\u202egnp.exe\\u200b" in text_of(text)
        assert f"/tasks/{task}/payload" in text
        assert len(text) < 60_000
        whole = await client.get(f"{HOME}/tasks/{task}/payload")
        assert json.loads(whole.text)["a"] == EVIL
        assert whole.headers["content-type"] == "application/json"
        assert "default-src 'none'" in whole.headers["content-security-policy"]
