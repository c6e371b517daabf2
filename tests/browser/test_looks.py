"""Every page: in both themes, by assistive technology, on a narrow screen, on paper, and without scripts."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from axe_playwright_python.async_playwright import Axe

from tests.browser.conftest import HOME, Sit, expect
from tests.browser.worlds import World

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.xdist_group("studio"), pytest.mark.thorough]
WCAG: Any = {
    "resultTypes": ["violations"],
    "rules": {"landmark-unique": {"enabled": True}},
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
}
# In the other theme only the colours are different.
RULES: Any = {
    "light": WCAG,
    "dark": {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": ["color-contrast"]}},
}
Theme = Literal["light", "dark"]
VARIANTS = {"a day", "filtered", "searched", "nothing", "verify", "prune"}  # of pages that are looked at anyway
NARROW = {"width": 390, "height": 844}
PARTS = 3  # of a test that goes through all pages


def told(found: Any) -> list[str]:
    return [
        f"{one['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found.response["violations"]
        for node in one["nodes"][:3]
    ]


def part_of(pages: dict[str, str], part: int) -> dict[str, str]:
    """Returns some of the pages: all of them would take a slow machine longer than a test may."""
    return {name: path for n, (name, path) in enumerate(pages.items()) if n % PARTS == part}


@pytest.mark.parametrize("theme", RULES)
@pytest.mark.parametrize("part", [*range(PARTS), None])
async def test_nothing_keeps_assistive_technology_out(studio: World, sit: Sit, theme: Theme, part: int | None) -> None:
    wrong: list[str] = []
    variants = {name: path for name, path in studio.pages.items() if name in VARIANTS}
    others = {name: path for name, path in studio.pages.items() if name not in VARIANTS}
    # Its script is none of ours: only here the policy is put aside.
    async with sit(studio.base, bypass_csp=True, color_scheme=theme, reduced_motion="reduce") as ann:
        for name, path in (variants if part is None else part_of(others, part)).items():
            await ann.go(path)
            wrong += [f"{name}: {one}" for one in told(await Axe().run(ann.page, options=RULES[theme]))]
    assert wrong == []


async def test_dialogs_and_pages_that_stand_alone_keep_nobody_out(studio: World, sit: Sit) -> None:
    wrong: list[str] = []
    async with sit(studio.base, bypass_csp=True, reduced_motion="reduce") as ann:
        ann.forgive("status of 404", "status of 422")
        for path, key in (("", "/"), ("", "?"), ("/nope", None), ("/failures?page=x&before=x", None)):
            await ann.go(path)
            if key:
                await ann.page.keyboard.press(key)
                await expect(ann.page.locator("dialog")).to_be_visible()
            for theme in RULES:
                await ann.wear(theme)
                wrong += [
                    f"{path} {key}, {theme}: {one}" for one in told(await Axe().run(ann.page, options=RULES[theme]))
                ]
    assert wrong == []


OUT_OF_SIGHT = """() => [...document.querySelectorAll("main :is(button, .button, summary, input, select)")]
  .filter((one) => one.checkVisibility() && !one.closest(".chart"))
  .filter((one) => { const box = one.getBoundingClientRect(); return box.right > innerWidth || box.left < 0; })
  .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("data", ["studio", "hostile"])
async def test_on_a_narrow_screen_no_page_scrolls_sideways_and_every_action_is_in_sight(
    data: str, part: int, studio: World, hostile: World, sit: Sit
) -> None:
    world = {"studio": studio, "hostile": hostile}[data]
    wide, hidden = {}, {}
    async with sit(world.base, viewport=NARROW) as ann:
        for name, path in part_of(world.pages, part).items():
            await ann.go(path)
            await ann.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            if over := await ann.overflow():
                wide[name] = over
            if found := await ann.page.evaluate(OUT_OF_SIGHT):
                hidden[name] = found
    assert (wide, hidden if data == "studio" else {}) == ({}, {})


@pytest.mark.parametrize("theme", RULES)
@pytest.mark.parametrize("width", [390, 1280])
async def test_the_circuits_are_read_and_acted_on(studio: World, sit: Sit, theme: Theme, width: int) -> None:
    """Their panel comes with the first circuit, so it is looked at by itself, with what can be done folded out."""
    viewport = {"width": width, "height": 844}
    async with sit(studio.base, bypass_csp=True, viewport=viewport, color_scheme=theme, reduced_motion="reduce") as ann:
        await ann.go(studio.pages["queues"])
        panel = ann.page.locator("section.panel", has=ann.page.get_by_role("heading", name="Circuits"))
        row = panel.locator("tr", has_text="BATCH_ITEM_SPARE")
        await expect(row).to_contain_text("open")  # or half open, by the time
        await expect(row).to_contain_text("opened by ann")
        await panel.locator("details").evaluate_all("(all) => all.map((one) => (one.open = true))")
        for name in ("Probe", "Close"):
            await expect(row.get_by_role("button", name=name).first).to_be_visible()
        assert not await ann.overflow()
        assert told(await Axe().run(ann.page, context="section.panel", options=RULES[theme])) == []


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
        for name in ("overview", "task", "operation", "failures"):
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


async def test_without_scripts_every_page_reads(studio: World, sit: Sit) -> None:
    async with sit(studio.base, java_script_enabled=False) as ann:
        for path in studio.pages.values():
            await ann.go(path)
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
        for name in ("failures", "tasks", "dead letters"):
            await ann.go(studio.pages[name])
            button = ann.page.get_by_role("button", name="Copy 0").first
            whole = ((await button.get_attribute("aria-label")) or "").removeprefix("Copy ")
            await button.evaluate(COPIED)
            await button.click()
            await expect(ann.page.locator("html")).to_have_attribute("data-copied", "")
            assert await ann.page.evaluate("navigator.clipboard.readText()") == whole
