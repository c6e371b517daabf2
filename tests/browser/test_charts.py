"""What stands at a moment of a chart: by hovering, by tapping, by the keys; and while it is drawn again."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page

from redrive import App
from redrive.console.regions import history
from tests.browser.conftest import PATIENCE_MS, Sit, console, expect
from tests.browser.worlds import World
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.xdist_group("studio"), pytest.mark.thorough]
COUNTED = """(sum) => [...document.querySelectorAll('[data-key="Throughput"] td:last-child')]
  .reduce((before, cell) => before + (Number(cell.textContent) || 0), 0) === sum"""
# What the tip says first, and what the row of its moment has first.
VALUE_AND_ROW = """(chart) => {
  const { first, step } = chart.querySelector("tbody").dataset, tip = chart.querySelector(".tip");
  const texts = [...tip.children].map((line) => line.textContent);
  const rows = [...chart.querySelectorAll("tbody tr")];
  const row = rows.find((_, i) => new Date((Number(first) + Number(step) * i) * 1000).toLocaleString() === texts[0]);
  return [texts[1], row.cells[1].textContent];
}"""
VALUES = re.compile(r"completed: \d+.*failed: \d+")


async def test_hovering_keys_and_tapping_show_the_values_of_the_table(studio: World, sit: Sit) -> None:
    async with sit(studio.base, has_touch=True, viewport={"width": 390, "height": 844}) as ann:
        await ann.go()
        chart = ann.page.locator("[data-chart]").first
        picture, tip = chart.locator("svg"), chart.locator(".tip")
        await picture.tap()
        await expect(tip).to_have_text(VALUES)
        assert await ann.overflow() == []
        await ann.page.mouse.move(5, 5)
        await expect(tip).to_have_count(0)
        await picture.hover()
        await expect(tip).to_have_text(VALUES)
        await ann.page.mouse.move(5, 5)
        await expect(tip).to_have_count(0)
        await picture.focus()
        await ann.page.keyboard.press("ArrowLeft")
        await ann.page.keyboard.press("ArrowLeft")
        await expect(tip).to_have_text(VALUES)
        # Of the row with the same moment: a minute may have begun since the keys were pressed.
        value, completed = await chart.evaluate(VALUE_AND_ROW)
        assert value == f"completed: {completed}"


async def counted(page: Page, total: int) -> None:
    """Waits until the chart has so many, without having the page evaluate text, which its policy forbids."""
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while not await page.evaluate(COUNTED, total):
            await asyncio.sleep(0.1)


async def test_what_is_read_stays_while_charts_are_drawn_again(
    app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "DRAWN_IN_A_STEP", 60)  # once a second
    async with console(app) as client, sit(client.base_url) as ann:
        page = ann.page
        await ann.go()
        await ann.is_live()
        chart = page.locator('[data-chart][data-key="Throughput"]')
        picture, tip = chart.locator("svg"), chart.locator(".tip")
        await expect(picture).to_contain_text("nothing yet")
        await fail_some(app, 1)  # two may fail in two minutes
        await counted(page, 1)
        await picture.focus()
        for _ in range(2):  # a minute may have begun meanwhile
            await page.keyboard.press("ArrowLeft")
            if "failed: 1" in (await tip.text_content() or ""):
                break
        await expect(tip).to_contain_text("failed: 1")
        moment = await tip.locator("strong").text_content()
        await tip.evaluate("(tip) => { window.tip = tip; window.mark = document.querySelector('.hit'); }")
        await fail_some(app, 3)
        await counted(page, 4)
        # The same moment, perhaps with a new value.
        await expect(tip.locator("strong")).to_have_text(moment or "")
        await expect(tip).to_contain_text(re.compile(r"failed: [1-4]"))
        assert await page.evaluate("window.tip.isConnected && window.mark.isConnected")
        await expect(picture).to_be_focused()
        await page.keyboard.press("ArrowLeft")
        await expect(tip.locator("strong")).not_to_have_text(moment or "")
        await page.keyboard.press("Tab")
        await expect(page.locator("[data-own]")).to_have_count(0)
