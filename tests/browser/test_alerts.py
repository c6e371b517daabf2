"""The banner of alerts comes and goes on open pages, and alerts are silenced without scripts, too."""

from __future__ import annotations

import pytest

from redrive import App
from tests.alerts.test_faces import TEXT, broken
from tests.browser.conftest import Sit, console, expect

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_the_banner_comes_and_goes(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann, sit(client.base_url) as bob:
        await ann.go("/tasks")
        await ann.is_live()
        banner = ann.page.locator("#alert-banner")
        await expect(banner).to_be_empty()
        await broken(app)
        await expect(banner).to_contain_text(TEXT)
        await expect(ann.page.locator('[data-badge="alerts"]')).to_have_text("1")
        await bob.go("/alerts")
        await bob.page.get_by_label("Why, failed default").fill("known")
        await bob.page.get_by_role("row").get_by_role("button", name="Silence").click()
        await expect(bob.page.get_by_text("failed:default is silenced until")).to_be_visible()
        await expect(banner).to_be_empty()


async def test_silence_without_scripts_on_a_phone(app: App, sit: Sit) -> None:
    small = {"width": 360, "height": 640}
    async with console(app) as client, sit(client.base_url, java_script_enabled=False, viewport=small) as ann:
        await broken(app)
        await ann.go("/alerts")
        await ann.page.get_by_label("Why, failed default").fill("known")
        await ann.page.get_by_role("button", name="Silence").first.click()
        await expect(ann.page.get_by_text("failed:default is silenced until")).to_be_visible()
        await ann.page.get_by_role("button", name="End it").click()
        await expect(ann.page.get_by_text("failed:default is not silenced any more")).to_be_visible()
