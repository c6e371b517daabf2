"""Every page, by assistive technology and on a narrow screen; dialogs, refusals, paper, themes; without scripts."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe

from redrive import App
from redrive.errors import StoreUnavailable
from redrive.ops.access import Role
from tests.browser.conftest import HOME, Person, Sit, console, expect, token
from tests.browser.worlds import World
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.xdist_group("studio"), pytest.mark.thorough]
WCAG: Any = {
    "resultTypes": ["violations"],
    "preload": False,  # styles are the same on all pages
    "rules": {"landmark-unique": {"enabled": True}},
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
}
# The colours of the other theme are reckoned in tests/console/test_contrast.py. The script of axe is none of ours: only
# here the policy is put aside.
READ: Any = {"bypass_csp": True, "color_scheme": "dark", "reduced_motion": "reduce"}
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PARTS = 3  # of a test that goes through all pages: all of them would take a slow machine longer than a test may
UNFOLD = "for (const one of document.querySelectorAll('details:not(.chart *)')) one.open = true"
OUT_OF_SIGHT = """() => [...document.querySelectorAll("main :is(button, .button, summary, input, select)")]
  .filter((one) => one.checkVisibility() && !one.closest(".chart"))
  .filter((one) => { const box = one.getBoundingClientRect(); return box.right > innerWidth || box.left < 0; })
  .map((one) => one.outerHTML.slice(0, 120))"""


async def barriers(person: Person, name: str) -> list[str]:
    """Returns what keeps somebody out of the page that is open: of those who hear it, and of those who have a narrow
    screen, on which it does not scroll sideways, and everything to press is in sight."""
    page = person.page
    await page.evaluate(UNFOLD)
    found: Any = await Axe().run(page, options=WCAG)
    wrong = [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found.response["violations"]
        for node in one["nodes"][:3]
    ]
    await page.set_viewport_size(NARROW)
    wrong += [f"too wide: {one}" for one in await person.overflow()]
    wrong += [f"out of sight: {one}" for one in await page.evaluate(OUT_OF_SIGHT)]
    await page.set_viewport_size(WIDE)
    return [f"{name}: {one}" for one in wrong]


@pytest.mark.parametrize("part", range(PARTS))
async def test_no_page_keeps_anybody_out(studio: World, sit: Sit, part: int) -> None:
    wrong = list[str]()
    async with sit(studio.base, **READ) as ann:
        for name, path in list(studio.pages.items())[part::PARTS]:
            await ann.go(path)
            wrong += await barriers(ann, name)
    assert wrong == []


async def test_dialogs_refusals_and_signing_in_keep_nobody_out(
    app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = list[str]()
    async with console(app) as client, sit(client.base_url, **READ) as vic:
        vic.forgive("status of 401", "status of 403", "status of 404", "status of 422", "status of 503")
        [failed] = await fail_some(app, 1)
        secret = await token(app, "vic", Role.VIEWER)
        await vic.sign_in("rdt_wrong")
        await expect(vic.page.get_by_role("alert")).to_be_visible()
        wrong += await barriers(vic, "wrong token")
        await vic.sign_in(secret)
        for path in (f"/tasks/{failed}", "/failures?page=x&before=x"):
            await vic.go(path)
            wrong += await barriers(vic, path)
        for key in ("/", "?"):
            await vic.go()
            await vic.page.keyboard.press(key)
            await expect(vic.page.locator("dialog")).to_be_visible()
            wrong += await barriers(vic, f"the dialog of {key}")
        store: Any = await app.store()

        async def away(*_: object, **__: object) -> None:
            raise StoreUnavailable("the database is away", hint="it is tried again")

        for path, title in (
            ("/settings", "You may not do that"),
            ("/nope", "There is no such thing"),
            ("/workers", "The store cannot be reached"),
        ):
            if path == "/workers":
                monkeypatch.setattr(store, "overview", away)
            await vic.go(path)
            await expect(vic.page.get_by_role("heading", name=title)).to_be_visible()
            wrong += await barriers(vic, title)
        monkeypatch.undo()
    assert wrong == []


async def test_long_names_and_texts_fit_a_narrow_screen(hostile: World, sit: Sit) -> None:
    wide = {}
    async with sit(hostile.base, viewport=NARROW) as ann:
        for name, path in hostile.pages.items():
            await ann.go(path)
            await ann.page.evaluate(UNFOLD)
            if over := await ann.overflow():
                wide[name] = over
    assert wide == {}


async def test_the_menu_of_a_narrow_screen_opens_and_closes(studio: World, sit: Sit) -> None:
    async with sit(studio.base, viewport=NARROW) as ann:
        await ann.go()
        menu = ann.page.get_by_role("navigation", name="Pages")
        await expect(menu).to_be_hidden()
        await ann.page.get_by_role("link", name="Menu", exact=True).click()
        await expect(menu).to_be_visible()
        await ann.page.get_by_role("link", name="Close the menu").click()
        await expect(menu).to_be_hidden()
        await ann.page.get_by_role("link", name="Menu", exact=True).click()
        await expect(menu).to_be_visible()
        await ann.page.keyboard.press("Escape")
        await expect(menu).to_be_hidden()
        await ann.page.get_by_role("link", name="Menu", exact=True).click()
        await menu.get_by_role("link", name="Failures").click()
        await expect(ann.page.get_by_role("heading", name="Failures", exact=True)).to_be_visible()
        await expect(menu).to_be_hidden()


async def test_on_paper_there_is_the_content_and_nothing_to_press(studio: World, sit: Sit) -> None:
    async with sit(studio.base) as ann:
        for name in ("overview", "operation"):
            await ann.go(studio.pages[name])
            await ann.page.locator("#problems").evaluate_all("(all) => all.map((one) => (one.style.height = '90px'))")
            await ann.page.emulate_media(media="print")
            await expect(ann.page.locator("main h1")).to_be_visible()
            assert await ann.page.locator("#problems").evaluate_all(
                "(all) => all.every((one) => one.scrollHeight <= one.clientHeight)"
            )
            for gone in (".side", ".bar", "form.act", "button", ".button"):
                assert not await ann.page.locator(gone).locator("visible=true").count(), (name, gone)


async def test_the_theme_follows_the_system_until_it_is_switched_and_then_stays(studio: World, sit: Sit) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    async with sit(studio.base, color_scheme="dark") as ann:
        await ann.go()
        dark = await ann.page.evaluate(ground)
        await ann.page.emulate_media(color_scheme="light")
        light = await ann.page.evaluate(ground)
        assert dark != light
        async with ann.page.expect_response("**/theme"):
            await ann.page.get_by_role("button", name="Switch between dark and light").click()
        assert await ann.page.evaluate(ground) == dark
        await ann.go("/failures")
        assert await ann.page.evaluate(ground) == dark
        async with ann.page.expect_response("**/theme"):
            await ann.page.get_by_role("button", name="Switch between dark and light").click()
        assert await ann.page.evaluate(ground) == light
        await ann.page.reload()
        assert await ann.page.evaluate(ground) == light


async def test_pages_read_without_scripts(studio: World, sit: Sit) -> None:
    async with sit(studio.base, java_script_enabled=False) as ann:
        for name in ("a day", "preview", "task", "operation", "processing", "projection"):
            await ann.go(studio.pages[name])
            await expect(ann.page.locator("main h1")).to_be_visible()
        await ann.go()
        for theme in ("dark", "light"):
            async with ann.page.expect_navigation():
                await ann.page.get_by_role("button", name="Switch between dark and light").click()
            await expect(ann.page.locator("html")).to_have_css("color-scheme", theme)
        await ann.page.get_by_role("searchbox", name="Jump to").fill("VIDEO_GEN")
        await ann.page.keyboard.press("Enter")
        await expect(ann.page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
        assert ann.page.url.startswith(f"{studio.base}{HOME}/tasks?kind=VIDEO_GEN")


# Remembers that a button has said so: it does for a second.
COPIED = """(button) => new MutationObserver(() => {
  if (button.classList.contains("copied")) document.documentElement.dataset.copied = "";
}).observe(button, { attributes: true })"""


async def test_ids_in_lists_are_copied_whole(studio: World, sit: Sit) -> None:
    async with sit(studio.base, permissions=["clipboard-read", "clipboard-write"]) as ann:
        await ann.go(studio.pages["failures"])
        button = ann.page.get_by_role("button", name="Copy 0").first
        whole = ((await button.get_attribute("aria-label")) or "").removeprefix("Copy ")
        await button.evaluate(COPIED)
        await button.click()
        await expect(ann.page.locator("html")).to_have_attribute("data-copied", "")
        assert await ann.page.evaluate("navigator.clipboard.readText()") == whole
