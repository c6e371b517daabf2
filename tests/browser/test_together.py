"""Two people at once: each sees what the other does, and dangerous things need both."""

from __future__ import annotations

import re

import pytest

from redrive import App
from redrive.kernel.operation import Action
from redrive.ops.access import Caller, Role
from redrive.ops.failures import parse_filter
from redrive.ops.inspect import parse_id
from redrive.ops.operations.lifecycle import How
from tests.browser.conftest import Sit, console, expect, token, working
from tests.browser.test_live import SHIFTED
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]


async def test_each_sees_what_the_other_does(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann, sit(client.base_url) as bob:
        [failed, *_] = await fail_some(app, 3)
        await bob.go("/failures")
        await bob.is_live()
        await bob.has_heard("failures")
        await expect(bob.page.locator('[data-badge="failed"]')).to_have_text("3")
        await ann.go(f"/tasks/{failed}")
        await ann.page.get_by_role("button", name="Retry", exact=True).click()
        await expect(ann.page.get_by_text("It is queued again, with fresh attempts.")).to_be_visible()
        await expect(bob.page.locator('[data-badge="failed"]')).to_have_text("2")
        await expect(bob.page.locator("#news")).to_contain_text("This list has changed")
        await fail_some(app, 5)
        await expect(bob.page.locator("#news")).to_contain_text(re.compile(r"^[56] new"))
        await bob.page.get_by_role("link", name="Refresh").click()
        await expect(bob.page.locator("#tasks-title + .badge")).to_have_text("8")
        await expect(bob.page.locator("#news")).to_be_hidden()

        await bob.go()
        await bob.is_live()
        await ann.go("/queues")
        row = ann.page.get_by_role("region", name="Queues").get_by_role("row").filter(has_text="default")
        await row.locator("summary").click()
        await row.get_by_label("Why: Pause queue default").fill("the disk is full")
        await row.get_by_role("button", name="Pause").click()
        await expect(bob.page.locator("#problems")).to_contain_text("the disk is full")

        await bob.go("/queues")
        await bob.is_live()
        await bob.has_heard("changed")
        await expect(bob.page.locator("#news")).to_be_hidden()
        await ann.page.get_by_role("region", name="Paused").get_by_role("button", name="Resume").click()
        await expect(bob.page.locator("#news")).to_contain_text("This page has changed")
        await bob.page.get_by_role("link", name="Refresh").click()
        await expect(bob.page.get_by_role("region", name="Paused")).to_be_hidden()


async def test_what_is_dangerous_is_asked_for_by_one_and_approved_by_another(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann, sit(client.base_url) as bob:
        ann.forgive("status of 403", "status of 409")
        await fail_some(app, 2)
        await ann.sign_in(await token(app, "ann", Role.ADMIN), "/failures/preview")
        form = ann.page.locator("form.act").filter(has=ann.page.get_by_role("button", name="Ask for approval"))
        await form.get_by_label("Why").fill("locks are mended")
        await form.get_by_label("What was fixed").fill("the locks")
        await form.get_by_label("May the handlers run twice?").select_option("yes")
        await form.get_by_role("button").click()
        await expect(ann.page.get_by_text("A second person has to agree before this begins.")).to_be_visible()
        asked = ann.page.url

        await bob.sign_in(await token(app, "bob", Role.ADMIN))
        await expect(bob.page.locator('[data-badge="approvals"]')).to_have_text("1")
        await ann.go("/approvals")
        await expect(ann.page.get_by_text("the locks", exact=True)).to_be_visible()
        await expect(ann.page.get_by_role("button", name="Approve")).to_have_count(0)  # nobody agrees with himself
        await ann.page.goto(asked)

        app.mended = True  # type: ignore[attr-defined]
        async with working(app):
            await bob.page.get_by_role("link", name="Approvals").click()
            await expect(bob.page.get_by_text("the locks", exact=True)).to_be_visible()
            await bob.page.get_by_role("button", name="Approve").click()
            await expect(bob.page.get_by_text("Approved; it has begun.")).to_be_visible()
            await expect(ann.page.locator("#progress .tag").first).to_have_text("completed")
        await expect(ann.page.get_by_text("The operation is over")).to_be_visible()
        await expect(ann.page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_a_task_that_a_colleague_gives_up_says_so_and_nothing_moves(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        [failed] = await fail_some(app, 1)
        await ann.go(f"/tasks/{failed}")
        await ann.is_live()
        await expect(ann.page.locator("#state")).to_have_text("failed")
        await ann.has_heard("changed")
        await ann.page.evaluate(SHIFTED)
        bea = await app.operator(Caller("bea", Role.OPERATOR))
        await bea.failures.forget([parse_id(failed)], "it is known")
        await expect(ann.page.locator("#state")).to_have_text("cancelled")
        await expect(ann.page.locator("#news")).to_contain_text("This page has changed")
        assert await ann.page.evaluate("window.shifted") < 0.001, await ann.page.evaluate("window.moved")
        await ann.page.get_by_role("button", name="Retry", exact=True).click()
        await expect(ann.page.get_by_text("Nothing was done: the task has changed")).to_be_visible()
        assert await bea.tasks.seen(parse_id(failed)) == "cancelled:0"


async def test_the_buttons_of_an_operation_stay_where_they_are(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann, working(app):
        # Some are tried again at once, and all of them not before somebody on a slow machine has looked twice.
        await app.enqueue_many([{"kind": "SEND", "payload": {"to": "t"}}] * 600)
        await ann.go()
        await expect(ann.page.locator("#totals .bad b").first).to_have_text("600")
        operator = await app.operator(Caller("ann", Role.ADMIN))
        begun = await operator.operations.begin(
            Action.RETRY, parse_filter(kind="SEND"), reason="again", how=How(rate=8.0)
        )
        await ann.go(f"/operations/{begun.operation.id}")
        stop = ann.page.get_by_role("button", name="Stop")
        before = await stop.bounding_box()
        await expect(ann.page.locator("#again .scroll tbody tr")).to_have_count(20)
        assert await stop.bounding_box() == before


async def test_ticks_are_ticks_after_coming_back(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        await fail_some(app, 3)
        await ann.go("/failures/preview?kind=SEND")
        await ann.page.locator("tbody input[type=checkbox]").first.check()
        await ann.page.locator("tbody a.id").first.click()
        await expect(ann.page.get_by_role("heading", name="SEND")).to_be_visible()
        await ann.page.go_back()
        await expect(ann.page.locator("tbody input[type=checkbox]").first).to_be_checked()
        await expect(ann.page.get_by_role("button", name="Retry Selected")).to_be_enabled()
