"""Open pages: patched in place while somebody reads, types and selects; and served again after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive import App
from tests.browser.conftest import Person, Sit, console, expect, working
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
SHIFTED = """() => {
  window.shifted = 0;
  window.moved = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) {
      if (one.hadRecentInput) continue;
      window.shifted += one.value;
      for (const { node } of one.sources) window.moved.push(node?.outerHTML?.slice(0, 100) ?? node?.nodeValue);
    }
  }).observe({ type: "layout-shift", buffered: false });
}"""


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
        for round in range(2, 7):
            await fail_some(app, 1)
            await failed(ann, round)
        assert await page.evaluate("document.activeElement === window.marked && window.marked.isConnected")
        assert await page.evaluate("scrollY") == at
        assert await page.locator("#charts details").first.get_attribute("open") is not None


async def test_selected_words_stay_and_the_news_follows_when_they_are_let_go(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        page = ann.page
        await fail_some(app, 1)
        await ann.go()
        await failed(ann, 1)
        await (
            page.locator("#kinds")
            .get_by_role("link", name="SEND")
            .evaluate("(link) => getSelection().selectAllChildren(link)")
        )
        count = page.locator("#kinds").get_by_role("row").filter(has_text="SEND").locator("td").nth(7)
        for round in range(2, 4):
            await fail_some(app, 1)
            await failed(ann, round)
        assert await page.evaluate("String(getSelection())") == "SEND"
        await expect(count).to_have_text("1")
        await page.evaluate("getSelection().removeAllRanges()")
        await expect(count).to_have_text("3")


async def test_nothing_shifts_while_numbers_change(app: App, sit: Sit) -> None:
    # One worker all the time: that there is none would be a problem of its own, and a line more.
    async with console(app) as client, sit(client.base_url) as ann, working(app):
        await app.enqueue_many([{"kind": "SEND", "payload": {"to": "t"}}] * 8)
        await ann.go()
        await failed(ann, 8)
        await ann.page.wait_for_timeout(1500)
        await ann.page.evaluate(SHIFTED)
        for more, total in ((1, 9), (2, 11), (90, 101)):
            await app.enqueue_many([{"kind": "SEND", "payload": {"to": "t"}}] * more)
            await expect(ann.page.locator("#totals .bad b").first).to_have_text(f"{total:,}")
        await ann.page.wait_for_timeout(100)
        assert await ann.page.evaluate("window.shifted") < 0.005, await ann.page.evaluate("window.moved")


@contextlib.asynccontextmanager
async def up(file: Path, port: int) -> AsyncIterator[str]:
    """The real command, until it is told to stop; it must end by itself then."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "redrive.cli", "up", "--app", "redrive.examples.shots:app", "--port", str(port)),
        env={**os.environ, "REDRIVE_URL": f"sqlite:///{file}"},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(30):
            while True:
                with contextlib.suppress(OSError):
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_page_outlives_a_restart_of_the_server(tmp_path: Path, sit: Sit) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with sit(f"http://127.0.0.1:{port}") as ann:
        ann.forgive("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET")
        live = ann.page.locator(".live")
        async with up(tmp_path / "r.db", port):
            await ann.go("/workers")
            await ann.is_live()
            await ann.page.evaluate("window.same = true")
        await expect(live).to_have_text("reconnecting")
        async with up(tmp_path / "r.db", port):
            await expect(live).to_have_text("live")
            assert await ann.page.evaluate("window.same")
            await expect(ann.page.locator("#fleet").get_by_text("alive")).to_be_visible()
            await ann.page.get_by_role("link", name="Queues & limits").click()
            await expect(ann.page.get_by_role("heading", name="Queues & limits")).to_be_visible()
            await ann.is_live()
