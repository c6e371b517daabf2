"""From a failure to its retry, as somebody who was woken up goes; and the same without scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Page

from redrive import App
from tests.browser.conftest import Sit, console, expect, working
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_the_whole_way_from_a_failure_to_its_retry(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        page = ann.page
        await ann.go("/who")
        await page.get_by_label("Your name").fill("Ann")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("status").filter(has_text="You act as Ann")).to_be_visible()
        await ann.is_live()
        await page.evaluate("window.same = true")

        await fail_some(app, 60)
        await expect(page.locator('[data-badge="failed"]')).to_have_text("60")
        await expect(page.locator("#problems")).to_contain_text("60 tasks failed by TASK_PRECONDITION_FAILED")
        assert await page.evaluate("window.same"), "the page was loaded again"

        await page.get_by_role("link", name="Look at the cause").click()
        await expect(page.get_by_role("heading", name="is locked in SEND")).to_be_visible()
        await page.get_by_role("link", name="Retry these 60…").click()
        await expect(page.get_by_role("heading", name="Preview: 60 tasks match")).to_be_visible()
        await expect(page.get_by_role("heading", name="Page 1 of 2")).to_be_visible()
        await page.get_by_role("link", name="Page 2 →").click()
        await expect(page.get_by_role("heading", name="Page 2 of 2")).to_be_visible()
        listed = await page.locator('form:has([data-needs-ticks]) > [name="back"]').input_value()
        app.mended = True  # type: ignore[attr-defined]
        async with working(app):
            await retry_two(page)
            await page.goto(f"{ann.base}{listed}")
            await page.get_by_role("link", name="Preview Match").click()
            await retry_the_rest(page)
        await expect(page.locator('[data-badge="failed"]')).to_have_text("")

        await page.get_by_role("link", name="All rows").click()
        await expect(page.get_by_role("region", name="Audit rows").get_by_text("Ann").first).to_be_visible()
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Export JSON").click()
        exported = Path(await (await download.value).path()).read_text()
        rows = [json.loads(line) for line in exported.splitlines()] if exported[0] == "{" else json.loads(exported)
        assert "mended" in json.dumps(rows)


async def retry_two(page: Page) -> None:
    selected = page.get_by_role("button", name="Retry Selected")
    await expect(selected).to_be_disabled()
    boxes = page.get_by_role("checkbox", name=re.compile("^Tick task"))
    await expect(boxes).to_have_count(10)
    await boxes.nth(0).check()
    await boxes.nth(1).check()
    await expect(page.get_by_text("2 ticked")).to_be_visible()
    await page.locator(".at-hand").get_by_label("Why").fill("the locks are fixed")
    await selected.click()
    await expect(page.get_by_role("heading", name="Retry of 2 tasks")).to_be_visible()
    await expect(page.locator("#progress")).to_contain_text("2 retried: 2 completed")


async def retry_the_rest(page: Page) -> None:
    form = page.locator("form[data-shell]")
    await form.get_by_label("Why").fill("the locks are mended")
    await form.get_by_label("Try first (canary)").fill("3")
    if await form.get_by_label("What was fixed").count():
        await form.get_by_label("What was fixed").fill("locks")
        await form.get_by_label("May the handlers run twice?").select_option("yes")
    said = "--reason 'the locks are mended' --canary 3"
    await expect(page.locator("#shell code").first).to_contain_text(said)
    await form.get_by_role("button", name="Retry 3 first").click()
    await expect(page.get_by_role("heading", name="Retry of 58 tasks")).to_be_visible()
    await page.evaluate("window.same = true")
    await expect(page.locator("#progress .tag").first).to_have_text("completed")
    await expect(page.locator("#progress")).to_contain_text("58 of 58 done")
    await expect(page.locator("#progress")).to_contain_text("passed")
    assert await page.evaluate("window.same"), "the page was loaded again"


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
