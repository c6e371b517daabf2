"""Who is let into the console, and what a form must bring."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from redrive import App
from redrive.console.page import own_address
from redrive.ops import access, sign_in
from redrive.ops.access import Caller, Role
from tests.console.conftest import HOME, console, done, fail_some, form_token, page, send, text_of

pytestmark = pytest.mark.anyio


async def token(app: App, name: str, role: Role) -> str:
    return (await access.create(await app.store(), name, role, actor="admin")).secret


async def signed_in(client: httpx.AsyncClient, secret: str) -> httpx.Response:
    return await client.post(f"{HOME}/sign-in", data={"token": secret})


class TestWithTokens:
    async def test_nobody_sees_a_page_without_signing_in(self, app: App) -> None:
        async with console(app) as client:
            await token(app, "ann", Role.ADMIN)
            for path in ("", "/failures?kind=SEND", "/settings", "/live?topics=menu", "/find.json?q=x"):
                answer = await client.get(HOME + path)
                assert answer.status_code == 303
                assert answer.headers["location"].startswith(f"{HOME}/sign-in?next=%2Fops%2Fqueue")

    async def test_after_signing_in_one_is_where_one_wanted_to_go(self, app: App) -> None:
        async with console(app) as client:
            secret = await token(app, "ann", Role.OPERATOR)
            asked = await client.get(f"{HOME}/failures?errorCode=X")
            form = await client.get(asked.headers["location"])
            assert 'name="next" value="/ops/queue/failures?errorCode=X"' in form.text
            answer = await client.post(
                f"{HOME}/sign-in", data={"token": secret, "next": f"{HOME}/failures?errorCode=X"}
            )
            assert (answer.status_code, answer.headers["location"]) == (303, f"{HOME}/failures?errorCode=X")
            cookie = answer.headers["set-cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=lax" in cookie
            assert "Path=/ops/queue" in cookie
            assert secret not in cookie
            assert "ann" in text_of(await page(client))
            elsewhere = await client.post(f"{HOME}/sign-in", data={"token": secret, "next": "//evil.example/x"})
            assert elsewhere.headers["location"] == HOME

    async def test_a_session_ends_with_its_token(self, app: App) -> None:
        async with console(app) as client:
            await signed_in(client, await token(app, "ann", Role.OPERATOR))
            await page(client)
            [record] = await access.list_tokens(await app.store())
            await access.revoke(await app.store(), record.id, actor="admin")
            assert (await client.get(HOME)).status_code == 303

    async def test_signing_out_ends_the_session_also_for_who_kept_the_cookie(self, app: App) -> None:
        async with console(app) as client:
            await signed_in(client, await token(app, "ann", Role.OPERATOR))
            kept = dict(client.cookies)
            answer = await send(client, "/sign-out", {})
            assert answer.status_code == 303
            client.cookies.update(kept)
            assert (await client.get(HOME)).status_code == 303

    async def test_idle_and_old_sessions_end(self, app: App) -> None:
        store = await app.store()
        secret = await sign_in.sign_in(store, await token(app, "ann", Role.VIEWER), sign_in.Limits())
        assert secret is not None
        never = timedelta(0)
        assert await sign_in.check(store, secret, sign_in.Limits()) is not None
        assert await sign_in.check(store, secret, sign_in.Limits(idle=never)) is None
        assert await sign_in.check(store, secret, sign_in.Limits(longest=never)) is None
        await app.close()

    async def test_wrong_tokens_are_limited(self, app: App) -> None:
        async with console(app) as client:
            await token(app, "ann", Role.OPERATOR)
            statuses = [(await signed_in(client, "rdt_wrong")).status_code for _ in range(12)]
            assert statuses[:10] == [401] * 10
            assert statuses[-1] == 429

    async def test_roles_hide_and_the_server_refuses(self, app: App) -> None:
        async with console(app) as client:
            [failed] = await fail_some(app, 1, payload={"to": "t0", "password": "hunter2"})
            await signed_in(client, await token(app, "vic", Role.VIEWER))
            for path in ("", "/failures", f"/tasks/{failed}", "/dead-letters", "/failures/preview", "/tasks"):
                seen = await page(client, path)
                assert "Forget" not in seen
                assert "hunter2" not in seen
            operator = await app.operator(Caller("ann", Role.OPERATOR))
            [cause] = (await operator.causes.list(limit=1)).causes
            await operator.causes.annotate(cause.row.fingerprint, None, note="a colleague's")
            for path, fields in (
                (f"/tasks/{failed}", {"do": "retry"}),
                (f"/tasks/{failed}", {"do": "retry", "seen": "failed:999"}),
                (f"/causes/{cause.row.fingerprint}", {"do": "note", "note": "mine", "was_note": "of before"}),
                ("/act/control.pause", {"target": "queue", "name": "default"}),
                ("/queues/limit", {"name": "SEND", "concurrency": "1"}),
                ("/failures/retry", {"id": failed}),
                ("/audit/prune", {"olderThanDays": "0"}),
            ):
                refused = await send(client, path, fields)
                assert refused.status_code == 403, path
                assert "viewer" in refused.text
            assert (await client.get(f"{HOME}/settings")).status_code == 403
            assert (await client.get(f"{HOME}/tasks/{failed}/payload")).status_code == 403

    async def test_a_stranger_with_the_other_ones_form_token_is_refused(self, app: App) -> None:
        async with console(app) as client:
            [failed] = await fail_some(app, 1)
            await signed_in(client, await token(app, "ann", Role.OPERATOR))
            hers = form_token(await page(client))
            client.cookies.clear()
            await signed_in(client, await token(app, "bob", Role.OPERATOR))
            answer = await client.post(f"{HOME}/tasks/{failed}", data={"csrf": hers, "do": "retry"})
            assert answer.status_code == 403


class TestWithoutTokens:
    async def test_on_this_machine_nobody_has_to_sign_in(self, app: App) -> None:
        async with console(app) as client:
            assert "Overview" in await page(client)
            assert (await client.get(f"{HOME}/sign-in")).headers["location"] == HOME

    async def test_the_name_that_was_given_is_in_the_audit_log(self, app: App) -> None:
        async with console(app) as client:
            [failed] = await fail_some(app, 1)
            await done(client, "/who", {"name": "Ännchen"}, "/who")
            await done(client, f"/tasks/{failed}", {"do": "retry", "reason": "mended"}, f"/tasks/{failed}")
            assert "TASK_RETRY by Ännchen" in text_of(await page(client, f"/tasks/{failed}"))

    async def test_reserved_names_are_refused(self, app: App) -> None:
        async with console(app) as client:
            assert (await send(client, "/who", {"name": "system"}, "/who")).status_code == 422

    async def test_nor_does_a_cookie_bring_them(self, app: App) -> None:
        async with console(app) as client:
            client.cookies.set("redrive_name", "%20Redrive%3Aprune")
            await done(client, "/act/control.pause", {"target": "group", "name": "g", "reason": "x"}, "/queues")
            [hold] = (await (await app.store()).overview()).holds
            assert hold.actor == "console"

    async def test_a_form_without_its_token_is_refused(self, app: App) -> None:
        async with console(app) as client:
            await page(client)
            fields = {"target": "queue", "name": "default"}
            for given in ({}, {"csrf": ""}, {"csrf": "0" * 64}):
                assert (await client.post(f"{HOME}/act/control.pause", data={**fields, **given})).status_code == 403
            assert not (await (await app.store()).overview()).holds

    async def test_pages_of_other_sites_may_not_act(self, app: App) -> None:
        async with console(app) as client:
            token = form_token(await page(client))
            fields = {"csrf": token, "target": "queue", "name": "default"}
            for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
                refused = await client.post(f"{HOME}/act/control.pause", data=fields, headers=headers)
                assert refused.status_code == 403

    async def test_a_form_works_behind_a_proxy_that_names_another_host(self, app: App) -> None:
        async with console(app) as client:
            form = {"csrf": form_token(await page(client)), "target": "queue", "name": "default"}
            public = {"origin": "https://ops.example"}
            refused = await client.post(f"{HOME}/act/control.pause", data=form, headers=public)
            assert refused.status_code == 403
            own = {**public, "sec-fetch-site": "same-origin"}
            assert (await client.post(f"{HOME}/act/control.pause", data=form, headers=own)).status_code == 303
            for site in ("same-site", "cross-site"):
                other = {**public, "sec-fetch-site": site}
                assert (await client.post(f"{HOME}/act/control.pause", data=form, headers=other)).status_code == 403

    async def test_another_name_for_this_machine_is_refused(self, app: App) -> None:
        async with console(app) as client:
            assert (await client.get(HOME, headers={"host": "rebound.example"})).status_code == 400

    async def test_what_comes_through_a_proxy_has_to_sign_in(self, app: App) -> None:
        async with console(app) as client:
            assert (await client.get(HOME, headers={"x-forwarded-for": "10.0.0.1"})).status_code == 401

    async def test_a_closed_door_asks_for_a_token(self, app: App) -> None:
        async with console(app, open_door=False) as client:
            assert (await client.get(HOME)).status_code == 303


async def test_every_page_says_what_a_browser_may_do_with_it(app: App) -> None:
    async with console(app) as client:
        for path in ("", "/failures", "/sign-in", "/nope", "/live-no"):
            headers = (await client.get(HOME + path, follow_redirects=True)).headers
            policy = headers["content-security-policy"]
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert headers["cache-control"] == "no-store"
            assert headers["x-frame-options"] == "DENY"
            # With "no-referrer" browsers send forms with "Origin: null", which is refused.
            assert headers["referrer-policy"] == "same-origin"


async def test_a_browser_is_sent_from_the_root_to_the_console_and_a_program_is_not(app: App) -> None:
    async with console(app) as client:
        browser = await client.get("/", headers={"accept": "text/html,*/*"})
        assert (browser.status_code, browser.headers["location"]) == (303, HOME)
        places = (await client.get("/")).json()
        assert (places["tasks"], places["console"]) == ("/api/tasks", HOME)


@pytest.mark.parametrize(
    ("asked", "leads"),
    [
        (f"{HOME}/queue?state=failed#x", f"{HOME}/queue?state=failed#x"),
        (HOME, HOME),
        (f"{HOME}?a=//b", f"{HOME}?a=//b"),
        (f"//{HOME}/queue", HOME),  # ///ops/queue: browsers take "ops" for a host
        (f"/{HOME}/queue", HOME),
        ("//evil.example/ops", HOME),
        ("https://evil.example/ops/x", HOME),
        (f"{HOME}\\..\\x", HOME),
        (f"/\t/evil.example{HOME}", HOME),
        (f"{HOME}/../api/tasks", HOME),
        (f"{HOME}/%2E%2e//evil.example", HOME),
        (f"{HOME}/a\n//b", HOME),
        (f"{HOME}er", HOME),
        ("", HOME),
    ],
)
def test_no_address_leads_out_of_the_console(asked: str, leads: str) -> None:
    assert own_address(asked) == leads
