"""What stands at a moment of a chart: by hovering, by tapping, by the keys."""

from __future__ import annotations

import re

import pytest

from tests.browser.conftest import Sit, expect
from tests.browser.worlds import World

pytestmark = [pytest.mark.anyio, pytest.mark.browser, pytest.mark.xdist_group("studio")]
VALUES = re.compile(r"completed: \d+.*failed: \d+")


async def test_hovering_and_keys_show_the_values_of_the_table(studio: World, sit: Sit) -> None:
    async with sit(studio.base) as ann:
        await ann.go()
        chart = ann.page.locator("[data-chart]").first
        picture, tip = chart.locator("svg"), chart.locator(".tip")
        await picture.hover()
        await expect(tip).to_have_text(VALUES)
        await ann.page.mouse.move(5, 5)
        await expect(tip).to_have_count(0)
        await picture.focus()
        await ann.page.keyboard.press("ArrowLeft")
        await ann.page.keyboard.press("ArrowLeft")
        await expect(tip).to_have_text(VALUES)
        row = chart.locator("tbody tr").nth(-2)
        completed = (await row.locator("td").first.text_content() or "").strip()
        await expect(tip).to_contain_text(f"completed: {completed}")


async def test_tapping_shows_them_too(studio: World, sit: Sit) -> None:
    async with sit(studio.base, has_touch=True, viewport={"width": 390, "height": 844}) as ann:
        await ann.go()
        chart = ann.page.locator("[data-chart]").first
        await chart.locator("svg").tap()
        await expect(chart.locator(".tip")).to_have_text(VALUES)
        assert await ann.overflow() == []
