"""Signing in and out, what a role sees, and what an open page does when its token is revoked."""

from __future__ import annotations

import pytest

from redrive import App
from redrive.console import live
from redrive.ops import access
from redrive.ops.access import Role
from tests.browser.conftest import HOME, Sit, console, expect, token
from tests.console.conftest import fail_some

pytestmark = [pytest.mark.anyio, pytest.mark.browser]
ACTS = "main button:not([data-copy], [data-copy-above], [data-copy-id]):visible, main input[type=checkbox]"
FORGED = """async (path) => {
  const form = new URLSearchParams({ csrf: document.querySelector("[name=csrf]").value, do: "retry", reason: "mine" });
  return (await fetch(path, { method: "POST", body: form, redirect: "manual" })).status;
}"""


async def test_a_token_opens_the_page_that_was_wanted_and_signing_out_closes_it(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as ann:
        ann.forgive("status of 401")
        secret = await token(app, "ann", Role.OPERATOR)
        await ann.sign_in("rdt_wrong", "/dead-letters")
        await expect(ann.page.get_by_role("alert")).to_contain_text("not valid")
        await ann.page.get_by_label("Token").fill(secret)
        await ann.page.keyboard.press("Enter")
        await expect(ann.page.get_by_role("heading", name="Dead letters")).to_be_visible()
        await ann.is_live()
        await expect(ann.page.locator(".who-name")).to_have_text("ann operator")
        assert not await ann.page.evaluate("document.cookie"), "scripts can read the session"
        await ann.page.get_by_role("button", name="Sign out").click()
        await expect(ann.page.get_by_role("heading", name="Sign in to redrive")).to_be_visible()
        await ann.page.go_back()
        await ann.page.reload()
        await expect(ann.page.get_by_role("heading", name="Sign in to redrive")).to_be_visible()


async def test_a_viewer_sees_no_buttons_and_a_forged_form_is_refused(app: App, sit: Sit) -> None:
    async with console(app) as client, sit(client.base_url) as vic:
        vic.forgive("status of 403")
        [failed] = await fail_some(app, 1)
        await vic.sign_in(await token(app, "vic", Role.VIEWER), f"/tasks/{failed}")
        await expect(vic.page.get_by_role("heading", name="SEND")).to_be_visible()
        for path in (f"/tasks/{failed}", "/failures/preview", "/queues", "/approvals", "/schedules"):
            await vic.go(path)
            assert await vic.page.locator(ACTS).count() == 0, path
        assert await vic.page.evaluate(FORGED, f"{HOME}/tasks/{failed}") == 403
        await vic.go("/settings")
        await expect(vic.page.get_by_role("heading", name="You may not do that")).to_be_visible()


async def test_a_revoked_token_ends_the_stream_and_the_next_click_asks_to_sign_in(
    app: App, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOKED_AT_S", 0.2)
    async with console(app) as client, sit(client.base_url) as ann:
        await ann.sign_in(await token(app, "ann", Role.OPERATOR))
        await ann.is_live()
        [record] = await access.list_tokens(await app.store())
        await access.revoke(await app.store(), record.id, actor="admin")
        await expect(ann.page.locator(".live")).to_have_text("signed out")
        await ann.page.get_by_role("link", name="Workers").first.click()
        await expect(ann.page.get_by_role("heading", name="Sign in to redrive")).to_be_visible()
