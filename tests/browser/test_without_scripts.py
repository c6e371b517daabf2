"""Without scripts the retry works, too."""

from __future__ import annotations

import pytest

from redrive import App
from tests.browser.conftest import Sit, console, expect
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_ticked_rows_are_retried_without_scripts(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url, java_script_enabled=False) as ann:
        await fail_some(app, 3)
        await ann.go("/failures/preview")
        await expect(ann.page.locator(".live")).to_be_hidden()
        await ann.page.locator("tbody input[type=checkbox]").first.check()
        await ann.page.locator(".at-hand").get_by_label("Why").fill("again")
        await ann.page.get_by_role("button", name="Retry Selected").click()
        await expect(ann.page.get_by_role("heading", name="Retry of 1 task")).to_be_visible()
        await expect(ann.page.get_by_role("status")).to_contain_text("It was begun")
