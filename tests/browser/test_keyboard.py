"""Without a mouse: the palette, the keys of pages, the order of tabs, and a focus that can be seen."""

from __future__ import annotations

import pytest

from redrive import App
from tests.browser.conftest import Sit, console, expect
from tests.browser.worlds import World
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.xdist_group("studio")]
# What can be used, in the order of the page; hidden ones (in closed details, or not shown) are left out.
USABLE = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.disabled && one.type !== "hidden")
  .length"""
STEP = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  window.reached ??= new Set();
  window.reached.add(one);
  return [one === document.body, seen, one.outerHTML.slice(0, 100), window.reached.size];
}"""
# The second of two keys has to follow within 1.5 s, which not every machine can do.
LATER = "{ const real = setTimeout; window.setTimeout = (run, ms, ...more) => real(run, ms * 20, ...more); }"


async def test_the_palette_jumps_to_pages_and_to_what_is_known(studio: World, sit: Sit) -> None:
    async with sit(studio.base) as ann:
        page = ann.page
        await ann.go()
        await page.keyboard.press("/")
        field = page.get_by_role("combobox", name="Jump to")
        await expect(field).to_be_focused()
        await page.keyboard.type("dead")
        await expect(page.get_by_role("option").first).to_contain_text("Dead letters")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()

        await ann.listens()
        await page.keyboard.press("Control+k")
        await expect(field).to_be_focused()
        await page.keyboard.type("something")
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog")).to_have_count(0)

        await page.keyboard.press("Control+k")
        await expect(field).to_be_focused()
        # In one go: what fits the half of it would be shown, and be gone again before it is chosen.
        await page.keyboard.insert_text("VIDEO_GEN")
        option = page.get_by_role("option").filter(has_text="VIDEO_GEN").filter(has_text="kind")
        await expect(option).to_be_visible()
        while await option.get_attribute("aria-selected") != "true":
            await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Tasks", exact=True)).to_be_visible()
        assert page.url.endswith("kind=VIDEO_GEN")


async def test_keys_show_themselves_and_lead_to_pages(studio: World, sit: Sit) -> None:
    async with sit(studio.base) as ann:
        page = ann.page
        await page.add_init_script(LATER)
        await ann.go()
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
        for keys, title in (("gf", "Failures"), ("gq", "Queues & limits"), ("go", "Overview")):
            await ann.listens()
            await page.keyboard.type(keys)
            await expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
        await page.get_by_role("searchbox", name="Jump to").focus()
        await page.keyboard.type("gf?")  # words, not keys
        await expect(page.get_by_role("searchbox", name="Jump to")).to_have_value("gf?")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()


async def test_tabs_reach_everything_and_the_focus_is_seen(studio: World, sit: Sit) -> None:
    async with sit(studio.base) as ann:
        for name in ("task", "queues"):
            await ann.go(studio.pages[name])
            usable = await ann.page.evaluate(USABLE)
            unseen, size = [], 0
            for _ in range(usable + 1):
                await ann.page.keyboard.press("Tab")
                left, seen, what, size = await ann.page.evaluate(STEP)
                if left:
                    break
                if not seen:
                    unseen.append(what)
            assert unseen == []
            assert size >= usable, name
        await ann.go()
        await ann.page.keyboard.press("Tab")
        await expect(ann.page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await ann.page.keyboard.press("Enter")
        await ann.page.wait_for_url("**#content")
        await ann.page.keyboard.press("Tab")
        await expect(ann.page.locator("main :focus")).to_have_count(1)


async def test_what_is_ticked_is_one_key_from_its_reason(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        await fail_some(app, 30)
        await ann.go("/failures/preview?kind=SEND")
        await ann.listens()
        keyboard = ann.page.keyboard
        await ann.page.get_by_role("checkbox", name="Tick the whole page").focus()
        await keyboard.press("Space")
        await expect(ann.page.get_by_text("30 ticked")).to_be_visible()
        await ann.page.evaluate("window.sent = 0; document.addEventListener('invalid', () => window.sent++, true)")
        await keyboard.press("Enter")
        assert await ann.page.evaluate("window.sent") == 0, "it leads there, and sends nothing"
        await keyboard.type("mended")
        await keyboard.press("Tab")
        await expect(ann.page.get_by_role("button", name="Retry Selected")).to_be_focused()
        await keyboard.press("Enter")
        await expect(ann.page.get_by_role("heading", name="Retry of 30 tasks")).to_be_visible()
