"""Very many failures, and very many moves a second: pages stay small, and the tab answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from bench import fixtures

from redrive import App, Context
from redrive.console.regions import overview
from redrive.ops.operator import Operator
from tests.browser.conftest import HOME, Sit, console, expect, working

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.thorough]
# The same pages, two minutes more: a million takes that long to make.
MILLION = bool(os.environ.get("REDRIVE_TEST_MILLION"))
FAILED = 1_000_000 if MILLION else 20_000
MOVES = 10_000 if MILLION else 3_000  # tasks; each moves twice
LARGEST_PAGE = 100_000
# How often the page was drawn, and the longest it was not; and how often news changed it.
WATCHED = """() => {
  window.frames = 0;
  window.longest = 0;
  window.patches = 0;
  let before = performance.now();
  const draw = (now) => {
    window.frames += 1;
    window.longest = Math.max(window.longest, now - before);
    before = now;
    requestAnimationFrame(draw);
  };
  requestAnimationFrame(draw);
  new MutationObserver(() => { window.patches += 1; }).observe(document.getElementById("totals"),
    { subtree: true, childList: true, characterData: true });
}"""


@pytest.fixture
async def broken(postgres_url: str) -> App:
    app = App(postgres_url)

    @app.task("BROKEN", max_attempts=1)
    async def run(ctx: Context, **payload: object) -> None: ...

    await app.store()
    peer: Any = SimpleNamespace(backend="postgres", url=postgres_url)
    await fixtures.make(peer, "failed", FAILED)
    return app


async def test_a_million_failures_are_looked_at_page_by_page(broken: App, sit: Sit) -> None:
    async with console(broken) as client, sit(client.base_url) as ann:
        page, sizes = ann.page, dict[str, int]()

        async def go(path: str) -> None:
            began = time.monotonic()
            answer = await page.goto(f"{ann.base}{HOME}{path}")
            assert answer is not None and answer.ok, path
            sizes[path] = len(await answer.body())
            print(f"{path or '/'}: {sizes[path]:,} bytes, {(time.monotonic() - began) * 1000:.0f} ms")

        await go("")
        await ann.is_live()
        await expect(page.locator("#totals .bad b").first).to_have_text(f"{FAILED:,}")
        await expect(page.locator('[data-badge="failed"]')).to_have_text("1M" if MILLION else "20k")
        await go("/failures?kind=BROKEN")
        seen: list[str] = []
        for _ in range(3):
            links = await page.locator("[data-list] tbody a.id").evaluate_all("(all) => all.map((one) => one.title)")
            assert len(links) == 50
            seen += links
            # The address alone does not tell: that of the page before has the same in it.
            async with page.expect_navigation(url="**before=**"):
                await page.get_by_role("link", name="Older").click()
            sizes[page.url] = len(await page.content())
        assert len(set(seen)) == 150
        assert not re.search(r"[?&](offset|page)=", page.url)
        await go("/failures?since=1h&errorCode=UNKNOWN")
        await expect(page.locator("#tasks-title + .badge")).to_have_text("10,000+")  # and no further
        await go("/failures?q=thing")
        await go("/failures")
        await page.locator('a[href*="/causes/"]').first.click()
        await expect(page.locator(".heading")).to_contain_text("UNKNOWN")
        sizes["/causes"] = len(await page.content())
        await page.get_by_role("link", name=re.compile("Retry these")).click()
        await expect(page.locator("h1")).to_have_text(f"Preview: {FAILED // 100:,} tasks match")
        sizes["/failures/preview"] = len(await page.content())
        await page.get_by_role("link", name="Page 2 →").click()
        await expect(page.get_by_role("heading", name=re.compile("^Page 2 of "))).to_be_visible()
        await go("/failures/preview?kind=BROKEN&page=400")
        assert {name: size for name, size in sizes.items() if size >= LARGEST_PAGE} == {}


async def test_a_thousand_moves_a_second_leave_the_tab_alive(
    postgres_url: str, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, once = list[float](), overview.sample

    async def sampled(operator: Operator) -> Any:
        looks.append(time.monotonic())
        return await once(operator)

    monkeypatch.setattr(overview, "sample", sampled)
    app = App(postgres_url)

    @app.task("QUICK")
    async def quick(ctx: Context) -> None: ...

    async with console(app) as client, sit(client.base_url) as ann, lag() as lags:
        page, requests = ann.page, list[str]()
        await ann.go()
        await ann.is_live()
        ann.context.on("request", lambda request: requests.append(request.url))
        await page.evaluate(WATCHED)
        looks.clear()
        began = time.monotonic()
        await app.enqueue_many([{"kind": "QUICK"}] * MOVES)
        async with working(app):
            await page.locator("#charts summary").first.click()
            await expect(page.locator("#charts details").first).to_have_attribute("open", "")
            done = page.locator("#totals a", has_text="completed").locator("b")
            await expect(done).to_have_text(f"{MOVES:,}", timeout=120_000)
        took = time.monotonic() - began
        frames, longest, patches = await page.evaluate("[window.frames, window.longest, window.patches]")
        print(
            f"{2 * MOVES / took:,.0f} moves a second for {took:.1f} s: {frames} frames, the longest {longest:.0f} ms,"
            f" {patches} patches of the totals, {len(looks)} looks; the loop waited {max(lags) * 1000:.0f} ms at most"
        )
        assert 1 <= patches <= len(looks) + 1  # what changed in between is not sent
        assert frames >= len(looks)  # it is drawn all the time
        assert requests == []  # one stream, and nothing else


@contextlib.asynccontextmanager
async def lag() -> AsyncIterator[list[float]]:
    """How late this process's loop was, again and again: the server's, too."""
    found = [0.0]

    async def look() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            found.append(time.monotonic() - before - 0.01)

    looking = asyncio.create_task(look())
    try:
        yield found
    finally:
        looking.cancel()
