"""A projection in front of a browser: events fail while somebody looks, and are replayed when that is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from redrive import App
from redrive.outbox.sinks.fts5 import Fts5
from redrive.settings import load_settings
from tests.browser.catalogue import Picky, with_catalogue
from tests.browser.conftest import Sit, console, expect, working

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


@pytest.fixture
async def app(tmp_path: Path) -> App:
    made = App(settings=with_catalogue(load_settings(url=f"sqlite:///{tmp_path}/shots.db", log_format="off")))
    made.outbox.projection("shots", sink=Picky(tmp_path / "search.db"))
    await made.migrate()
    return made


async def publish(app: App, entity: str, duration: object) -> None:
    await app.outbox.publish(
        None, "shots", "shot", entity, "upsert", 1, {"title": f"dawn {entity}", "duration": duration}
    )


async def test_events_fail_while_somebody_looks_and_are_replayed(
    app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        page = ann.page
        await ann.go()
        await page.get_by_role("link", name="Outbox").click()
        await page.get_by_role("link", name="shots").click()
        await expect(page.get_by_text("Everything is done")).to_be_visible()
        await ann.is_live()
        await ann.has_heard("changed")
        await page.evaluate("window.same = true")
        await publish(app, "a", 1)
        await expect(page.locator("#figures")).to_contain_text("1lag")  # it has heard how things were before
        async with working(app, queues=("outbox:shots",)):
            for entity, duration in (("b", "long"), ("c", "longer")):
                await publish(app, entity, duration)
            failures = page.get_by_role("region", name="Failures by reason")
            await expect(failures).to_contain_text("http_4xx")
            await expect(page.locator("#figures .bad").first).to_have_text("2failed")
            await expect(
                page.get_by_role("region", name="Events").get_by_text("mapper_parsing_exception")
            ).to_have_count(2)
            await expect(page.locator("#news")).to_contain_text("This page has changed")
            assert await page.evaluate("window.same"), "the page was loaded again"
            monkeypatch.setattr(Picky, "write", Fts5.write)  # the mapping is mended
            await page.get_by_role("link", name="Refresh").click()
            await page.get_by_role("link", name="Replay 2 failed…").click()
            await expect(page.get_by_role("heading", name="Replay: 2 of 2 events")).to_be_visible()
            await page.get_by_label("At most").fill("1")
            await page.get_by_role("button", name="Look again").click()
            await expect(page.get_by_role("heading", name="Replay: 1 of 2 events")).to_be_visible()
            await page.get_by_label("Why").fill("the mapping is mended")
            await page.get_by_role("button", name="Replay 1").click()
            await expect(page.get_by_role("status").filter(has_text="1 event is tried again")).to_be_visible()
            await expect(page.locator("#figures")).to_contain_text("2done")
        await page.get_by_label("Search the documents").fill("dawn b")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="Documents")).to_contain_text("shot:b")
