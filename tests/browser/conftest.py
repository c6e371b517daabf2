"""People in front of browsers: each has a context of their own, and whatever goes wrong in it fails the test.

One browser serves all tests of a process. The content security policy is enforced, and errors of scripts, of the
console, of the policy, and requests to another host are complaints.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright, expect

from redrive import App
from redrive.console import live
from redrive.observe.logs import TaskLog
from redrive.ops import access
from redrive.ops.access import Role
from redrive.settings import Options
from tests.browser import chromium
from tests.browser.studio import furnish, make_studio
from tests.browser.worlds import World, make_hostile, world
from tests.console.conftest import HOME, app
from tests.console.conftest import console as console_of

__all__ = ["HOME", "app", "console", "expect"]
PATIENCE_MS = 60_000
START_MS = 150_000  # of a browser
VIOLATIONS = """addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));"""
TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const wide = [...document.body.querySelectorAll("*")].filter(
    (one) => one.getBoundingClientRect().right > width + 1 && !one.closest(".scroll, pre"));
  return ["page", ...wide.slice(-4).map((one) => one.outerHTML.slice(0, 120))];
}"""
# Remembers the names of what a page was told; the listener is there before the page's own.
HEARD = """{
  const heard = new Set();
  const Stream = window.EventSource;
  window.EventSource = class extends Stream {
    constructor(url) {
      super(url);
      this.addEventListener("message", (event) => {
        for (const name of Object.keys(JSON.parse(event.data).regions)) heard.add(name);
        document.documentElement.dataset.heard = [...heard].join(" ");
      });
    }
  };
}"""
expect.set_options(timeout=PATIENCE_MS)
console = partial(console_of, port=True)


@pytest.fixture(autouse=True)
def sampled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open pages hear of news after 0.2 seconds instead of one."""
    monkeypatch.setattr(live, "EVERY_S", 0.2)


@pytest.fixture(scope="package")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    found = chromium.find()
    if found is None:
        pytest.skip(chromium.NONE)
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=found, args=chromium.switches(), timeout=START_MS)
        yield started
        await started.close()


class Person:
    """Somebody with a browser: ``page`` is what they look at."""

    def __init__(self, base: str, context: BrowserContext, page: Page) -> None:
        self.base, self.context, self.page = base, context, page
        self.complaints: list[str] = []
        self._forgiven: list[str] = []

    def forgive(self, *words: str) -> None:
        """Expects complaints with these words: a refusal is an error for the browser, too."""
        self._forgiven += words

    async def go(self, path: str = "") -> None:
        await self.page.goto(f"{self.base}{HOME}{path}")

    async def listens(self) -> None:
        """Waits until the page's scripts run: what it shows can be seen before, and a key pressed then is lost."""
        await self.page.wait_for_load_state()

    async def is_live(self) -> None:
        await expect(self.page.locator(".live")).to_have_attribute("data-state", "on")

    async def has_heard(self, name: str) -> None:
        """Waits until the page was told how things are: what changes before is no news to it. A page that is live may
        not have been told yet. ``name`` is that of a value or region in ``redrive.console.mount``."""
        await expect(self.page.locator("html")).to_have_attribute("data-heard", re.compile(rf"(^| ){name}( |$)"))

    async def sign_in(self, secret: str, path: str = "") -> None:
        await self.go(path)
        await self.page.get_by_label("Token").fill(secret)
        # Who goes elsewhere before the answer is there has no session yet, and before its page is there, two ways.
        async with self.page.expect_navigation():
            await self.page.get_by_role("button", name="Sign in").click()

    async def wear(self, theme: Literal["light", "dark"]) -> None:
        """Switches the system's theme, and waits until nothing on the page is half way between two colours."""
        await self.page.emulate_media(color_scheme=theme)
        await self.page.evaluate("Promise.allSettled(document.getAnimations().map((one) => one.finished))")

    async def overflow(self) -> list[str]:
        """Returns the elements that make the page wider than the window."""
        found: list[str] = await self.page.evaluate(TOO_WIDE)
        return found

    def heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.base:
            self.complaints.append(f"another host was asked: {request.url}")

    def left(self) -> list[str]:
        """Returns the complaints that nobody expected."""
        return [one for one in self.complaints if not any(word in one for word in self._forgiven)]


class Sit(Protocol):
    """Puts somebody in front of a browser at this address."""

    def __call__(self, base: object, **options: Any) -> AbstractAsyncContextManager[Person]: ...


@pytest.fixture
def sit(browser: Browser) -> Sit:
    @asynccontextmanager
    async def seated(base: object, **options: Any) -> AsyncIterator[Person]:
        context = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        context.set_default_timeout(PATIENCE_MS)
        if options.get("java_script_enabled", True):
            await context.add_init_script(VIOLATIONS)
            await context.add_init_script(HEARD)
        person = Person(str(base).rstrip("/"), context, await context.new_page())
        context.on("console", person.heard)
        context.on("weberror", lambda error: person.complaints.append(f"page error: {error.error}"))
        context.on("request", person.asked)
        try:
            yield person
        finally:
            await context.close()
        assert person.left() == []

    return seated


@asynccontextmanager
async def working(app: App, **options: Any) -> AsyncIterator[None]:
    """A worker that runs meanwhile."""
    worker = app.worker(await app.store(), Options(concurrency=10, **options), log=TaskLog(style="off"))
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def token(app: App, name: str, role: Role) -> str:
    return (await access.create(await app.store(), name, role, actor="admin")).secret


@pytest.fixture(scope="package")
async def studio(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A furnished store, served to all tests that only look."""
    file = tmp_path_factory.mktemp("studio") / "studio.db"
    made = make_studio(f"sqlite:///{file}")
    await furnish(made, file, 2)
    async with console(made) as client:
        yield await world(client)


@pytest.fixture(scope="package")
async def hostile(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """The same with names and texts that are long, unbroken, and full of marks."""
    made = await make_hostile(tmp_path_factory.mktemp("hostile") / "hostile.db")
    async with console(made) as client:
        yield await world(client)
