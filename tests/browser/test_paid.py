"""What customers pay for, in front of a browser: from a batch that failed to its money, live, and as a viewer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive import App
from redrive.batches.remote.application import RemoteBatches
from redrive.ledger.application import AppLedger
from redrive.ops.access import Role
from redrive.settings import load_settings
from redrive.webhooks.application import Webhooks
from tests.batches_remote.conftest import Scripted
from tests.browser.conftest import Person, Sit, console, expect, token, working
from tests.browser.farm import QUEUES, order, shots, with_farm
from tests.browser.farm import work as work_off
from tests.browser.test_live import SHIFTED
from tests.webhooks.receiver import Receiver, receiving

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
# By where it is: what it says may have changed since it moved.
MOVED_ELSEWHERE = """() => {
  const line = document.querySelector("#progress .row");
  return window.moved.filter((_, i) => window.movedNodes[i] && !line.contains(window.movedNodes[i]));
}"""


@pytest.fixture
async def farm(tmp_path: Path) -> AsyncIterator[tuple[App, Receiver]]:
    """A customer with an account and an endpoint, and a provider."""
    app = App(settings=with_farm(load_settings(url=f"sqlite:///{tmp_path}/farm.db", log_format="off")))
    app.provider("farm", Scripted())
    await app.migrate()
    await app.of(AppLedger).open("studio")
    await app.of(AppLedger).credit("studio", 100, "first", reason="invoice 4711")
    with receiving() as receiver:
        await app.of(Webhooks).add(receiver.url(), account="studio")
        yield app, receiver


async def test_a_customers_batch_failed(farm: tuple[App, Receiver], sit: Sit) -> None:
    """Somebody finds out why, starts what failed again, and sees the money and what the customer was told."""
    app, _ = farm
    await order(app, "studio", "Trailer", shots(12, broken=True))
    await work_off(app)
    async with console(app) as client, sit(client.base_url) as ann:
        page = ann.page
        await ann.go("/batches")
        await page.get_by_role("link", name="Trailer").click()
        await expect(
            page.get_by_role("img", name="8 completed, 4 failed, 0 cancelled, 0 pending of 12")
        ).to_be_visible()
        await expect(page.locator("#money")).to_contain_text(
            re.compile("0\\s*frozen\\s*40\\s*captured\\s*20\\s*released")
        )
        await _finds_out_why(page_of=ann)
        await expect(page.get_by_text("20 credits are frozen")).to_be_visible()
        await page.get_by_label("Why").fill("the farm is back")
        await page.get_by_role("button", name="Start 4 again").click()
        await expect(page.get_by_role("status").filter(has_text="4 items are started again")).to_be_visible()
        await ann.is_live()
        await ann.has_heard("changed")
        await page.evaluate("window.same = true")
        async with working(app, queues=QUEUES):
            await expect(page.locator("#progress .tag").first).to_have_text("completed")
            await expect(page.locator("#failures")).to_contain_text("Nothing is failed")
            await expect(page.locator("#money")).to_contain_text("60")
            await expect(page.locator("#news")).to_contain_text("This page has changed")
            assert await page.evaluate("window.same"), "the page was loaded again"
            await page.get_by_role("link", name="Refresh").click()
            await expect(page.get_by_text("There is nothing to do with it.")).to_be_visible()
            await page.get_by_role("link", name="deliveries of this batch").click()
            await page.get_by_role("region", name="Deliveries").get_by_role("rowheader").get_by_role("link").click()
            await expect(page.locator("#facts")).to_contain_text("completed")
        await page.get_by_role("link", name="What it tells of").click()
        await page.get_by_role("link", name="Its movements").click()
        movements = page.get_by_role("region", name="Movements").get_by_role("row")
        await expect(movements).to_have_count(5)  # two charges, each frozen and settled, and the head
        await expect(page.locator("#money")).to_contain_text("40")


async def _finds_out_why(page_of: Person) -> None:
    page = page_of.page
    await page.get_by_role("region", name="Failures by type").get_by_role("link", name="timeout").click()
    rows = page.get_by_role("region", name="Items").get_by_role("row")
    await expect(rows).to_have_count(2)
    await expect(rows.last).to_contain_text("no answer within 600 s")
    await rows.last.get_by_role("link").first.click()
    await expect(page.get_by_role("heading", name="Item of a batch")).to_be_visible()
    await page.get_by_role("link", name="Trailer").click()


async def test_nothing_shifts_while_items_end(farm: tuple[App, Receiver], sit: Sit) -> None:
    app, _ = farm
    batch = await order(app, "studio", "Trailer", [*shots(6, broken=True), *shots(2, slow=True)], price=1)
    tall = {"width": 1280, "height": 3000}
    async with console(app) as client, sit(client.base_url, viewport=tall) as ann:
        page = ann.page
        await ann.go(f"/batches/{batch.id}")
        await ann.is_live()
        await expect(page.locator("#items tbody tr")).to_have_count(8)
        await page.evaluate(SHIFTED)
        await page.get_by_label("Why").fill("half a sen")
        await page.locator("#items tbody tr").nth(3).evaluate("(row) => (window.row = row)")
        await work_off(app)
        await expect(page.locator("#items .tag.completed")).to_have_count(4)
        await expect(page.locator("#progress")).to_contain_text("6 of 8 have ended")
        await expect(page.locator("#failures tbody tr")).to_have_count(2)
        await page.wait_for_timeout(100)
        # What says how far it is grows within its line; nothing else moves.
        assert await page.evaluate(MOVED_ELSEWHERE) == []
        assert await page.evaluate("window.row.isConnected && window.row.textContent.includes('completed')")
        await expect(page.get_by_label("Why")).to_have_value("half a sen")


async def test_a_viewer_finds_nothing_to_press_and_no_secret(farm: tuple[App, Receiver], sit: Sit) -> None:
    app, receiver = farm
    batch = await order(app, "studio", "Trailer", shots(3, broken=True), meta={"vault": 1})
    await work_off(app)
    [endpoint] = await app.of(Webhooks).endpoints("studio")
    rotated = await app.of(Webhooks).rotate(endpoint["id"])
    async with console(app) as client, sit(client.base_url) as vic:
        await vic.sign_in(await token(app, "vic", Role.VIEWER))
        delivery = await _first_delivery(vic)
        for path in (
            "/batches",
            f"/batches/{batch.id}",
            "/ledger",
            "/ledger/studio",
            "/webhooks/endpoints",
            f"/webhooks/endpoints/{endpoint['id']}",
            "/webhooks/deliveries",
            delivery,
        ):
            await vic.go(path)
            await expect(vic.page.locator("main h1")).to_be_visible()
            assert not await vic.page.locator("main form[method=post]").count(), path
            text = await vic.page.content()
            for secret in (rotated["secret"], "whsec_", receiver.url(), "vault", "s-001"):
                assert secret not in text, (path, secret)
    assert (await app.of(RemoteBatches).get(batch.id)).settled


async def _first_delivery(person: Person) -> str:
    await person.go("/webhooks/deliveries")
    found = await person.page.locator("a[href*='/webhooks/deliveries/']").first.get_attribute("href")
    assert found is not None
    return found.removeprefix("/ops/queue")
