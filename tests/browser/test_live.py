"""Open pages: patched in place while somebody reads, types and selects; and served again after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive import App, Context, Fail
from redrive.console import live
from redrive.console.regions import history
from redrive.ops.access import Caller, Role
from tests.browser.conftest import Person, Sit, console, expect, working
from tests.cluster import free_port
from tests.commands import start_module
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
# Clicks "Show all", and returns what is seen then.
UNFOLDED = """() => {
  const button = document.querySelector("[data-unfold=problems]"), region = document.getElementById("problems");
  button.click();
  return {
    needed: button.hasAttribute("data-needed"),
    over: region.querySelectorAll("[data-over]").length,
    levels: [...region.querySelectorAll(".tag")].map((tag) => tag.textContent),
    fits: region.scrollHeight <= region.clientHeight,
  };
}"""
SHIFTED = """() => {
  window.shifted = 0;
  window.moved = [];
  window.movedNodes = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) {
      if (one.hadRecentInput) continue;
      window.shifted += one.value;
      for (const { node } of one.sources) {
        window.moved.push(node?.outerHTML?.slice(0, 100) ?? node?.nodeValue);
        window.movedNodes.push(node);
      }
    }
  }).observe({ type: "layout-shift", buffered: false });
}"""


async def _refuse(ctx: Context, to: str) -> None:
    raise Fail("TASK_PRECONDITION_FAILED", "no")


async def failed(person: Person, count: int) -> None:
    await expect(person.page.locator('[data-badge="failed"]')).to_have_text(str(count))
    await expect(person.page.locator("#totals .bad b").first).to_have_text(str(count))


async def test_what_somebody_is_doing_survives_updates(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url, viewport={"width": 1280, "height": 500}) as ann:
        page = ann.page
        await fail_some(app, 1)
        await ann.go()
        await ann.is_live()
        await failed(ann, 1)
        kind = page.locator("#kinds").get_by_role("link", name="SEND")
        await page.locator("#charts details").first.locator("summary").click()
        await kind.focus()
        await page.evaluate("window.marked = document.activeElement; scrollTo(0, 300)")
        at = await page.evaluate("scrollY")
        for round in range(2, 4):
            await fail_some(app, 1)
            await failed(ann, round)
        assert await page.evaluate("document.activeElement === window.marked && window.marked.isConnected")
        assert await page.evaluate("scrollY") == at
        assert await page.locator("#charts details").first.get_attribute("open") is not None

        # Selected words stay, and the news follows when they are let go.
        await kind.evaluate("(link) => getSelection().selectAllChildren(link)")
        count = page.locator("#kinds").get_by_role("row").filter(has_text="SEND").locator(".failed")
        await fail_some(app, 1)
        await failed(ann, 4)
        assert await page.evaluate("String(getSelection())") == "SEND"
        await expect(count).to_have_text("3")
        await page.evaluate("getSelection().removeAllRanges()")
        await expect(count).to_have_text("4")


async def test_nothing_shifts_when_something_is_new(app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "DRAWN_IN_A_STEP", 60)  # once a second
    for kind in ("ALPHA", "ZULU"):
        app.task(kind, max_attempts=1)(_refuse)
    tall = {"width": 1280, "height": 3000}  # everything is in sight, and counts
    async with console(app) as client, sit(client.base_url, viewport=tall) as ann, working(app):
        page = ann.page
        await app.enqueue_many([{"kind": "SEND", "payload": {"to": "t"}}] * 8)
        await ann.go()
        await failed(ann, 8)
        await expect(page.locator("#charts tbody").first).to_contain_text("8")
        await page.evaluate(SHIFTED)
        # More digits, other bars, a kind that would stand before the others, problems that would, too.
        for kind, more, total in (("SEND", 1, 9), ("SEND", 93, 102), ("ZULU", 1, 103), ("ALPHA", 900, 1003)):
            await app.enqueue_many([{"kind": kind, "payload": {"to": "t"}}] * more)
            await expect(page.locator("#totals .bad b").first).to_have_text(f"{total:,}")
        operator = await app.operator(Caller("ann", Role.ADMIN))
        for kind in ("ALPHA", "SEND", "ZULU"):
            await operator.control.pause("kind", kind, "the disk is full")
            await expect(page.locator("#problems li").filter(has_text="the disk").last).to_contain_text(kind)
        await app.enqueue("SYSTEM_HEALTH_CHECK", queue="four")
        await expect(page.locator("#problems")).to_contain_text("four")
        await operator.control.resume("kind", "ALPHA", None)
        await expect(page.locator("#problems [data-over]")).to_contain_text("ALPHA")
        await page.wait_for_timeout(100)
        assert await page.evaluate("window.moved") == []
        assert await page.evaluate("window.shifted") == 0

        # What does not fit is a click away, in its order.
        await expect(page.get_by_role("button", name="Show all")).to_be_visible()
        unfolded = await page.evaluate(UNFOLDED)  # in one go: what comes a moment later has no room again
        levels = unfolded["levels"]
        assert levels == sorted(levels, key=["critical", "warning", "note"].index)
        assert (unfolded["needed"], unfolded["over"], unfolded["fits"]) == (False, 0, True)


@contextlib.asynccontextmanager
async def up(file: Path, port: int) -> AsyncIterator[str]:
    """The real command, until it is told to stop; it must end by itself then."""
    words = ("up", "--app", "redrive_kit.examples.shots:app", "--port", str(port))
    env = {**os.environ, "REDRIVE_URL": f"sqlite:///{file}"}
    process = start_module("redrive.cli", *words, env=env, log=file.with_suffix(".log"))
    try:
        async with asyncio.timeout(120):
            while True:
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()


async def test_of_too_many_pages_the_first_is_paused_until_somebody_clicks_into_it(
    app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS_OF_ONE", 1)
    async with console(app) as client, sit(client.base_url) as ann:
        await ann.go()
        await ann.is_live()
        other = await ann.context.new_page()
        await other.goto(ann.page.url)
        await expect(other.locator(".live")).to_have_text("live")
        await expect(ann.page.locator(".lost")).to_contain_text("Many of your pages are open")
        await ann.page.get_by_role("heading", name="Overview").click()
        await ann.is_live()
        await expect(ann.page.locator(".lost")).to_be_hidden()
        await expect(other.locator(".live")).to_have_text("too many pages")


async def test_a_page_outlives_a_restart_of_the_server(tmp_path: Path, sit: Sit) -> None:
    port = free_port()
    async with sit(f"http://127.0.0.1:{port}") as ann:
        ann.forgive("net::ERR_")  # refused, reset, closed, empty: by what the server was at when it stopped
        live, told = ann.page.locator(".live"), ann.page.locator(".lost")
        as_of = ann.page.locator(".as-of time")
        async with up(tmp_path / "r.db", port):
            await ann.go("/workers")
            await ann.is_live()
            await ann.page.evaluate("window.same = true")
            made = await as_of.inner_text()
            await expect(as_of).not_to_have_text(made)  # what is pushed is as of the last word
            await expect(told).to_be_hidden()
            heading = await ann.page.locator("h1").bounding_box()
        await expect(live).to_have_text("reconnecting")
        await expect(told).to_contain_text(f"What you see is as of {await as_of.inner_text()}")
        await expect(ann.page.locator("#fleet table")).to_have_css("filter", "grayscale(1)")
        assert await ann.page.locator("h1").bounding_box() == heading  # nothing has moved
        async with up(tmp_path / "r.db", port):
            await expect(live).to_have_text("live")
            await expect(told).to_be_hidden()
            await expect(ann.page.locator("#fleet table")).to_have_css("filter", "none")
            assert await ann.page.evaluate("window.same")
            await expect(ann.page.locator("#fleet").get_by_text("alive")).to_be_visible()
            await ann.page.get_by_role("link", name="Queues & limits").click()
            await expect(ann.page.get_by_role("heading", name="Queues & limits")).to_be_visible()
            await ann.is_live()
