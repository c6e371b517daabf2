"""A form that is sent while the store is away is kept, and can be sent again; it is done once."""

from __future__ import annotations

import re
from html import unescape

import httpx
import pytest

from redrive import App
from redrive.errors import MayHaveLanded, StoreUnavailable
from redrive.kernel.commit import Commit
from redrive.ops import access
from redrive.ops.access import Caller, Role
from tests.console.conftest import HOME, console, fail_some, form_token, make_app, page, send, text_of, work
from tests.proxy import Proxy

pytestmark = pytest.mark.anyio
HOSTILE = '"><script>alert(1)</script>'


def kept(html: str) -> tuple[str, list[tuple[str, str]]]:
    """Where the form of an error page leads, and all that it would send."""
    found = re.search(
        r'<form method="post" action="([^"]*)"[^>]*aria-label="What you sent">(.*?)</form>', html, re.DOTALL
    )
    assert found, text_of(html)
    fields = re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', found[2])
    return unescape(found[1]), [(name, unescape(value)) for name, value in fields]


async def sent_again(client: httpx.AsyncClient, html: str) -> httpx.Response:
    action, fields = kept(html)
    named: dict[str, list[str]] = {}
    for name, value in fields:
        named.setdefault(name, []).append(value)
    return await client.post(action, data=named)


async def test_what_was_typed_outlives_an_outage(proxied_url: str, proxy: Proxy) -> None:
    app = make_app(proxied_url)
    async with console(app) as client:
        ids = await fail_some(app, 3)
        made = await access.create(await app.store(), "ann", Role.OPERATOR, actor="admin")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        token = form_token(before := await page(client, "/failures/preview"))
        plan = re.search(r'name="seen" value="([^"]*)"', before)
        assert plan
        proxy.refuse()
        proxy.cut()
        typed = {"id": ids[:2], "reason": f"the farm is back {HOSTILE}"}
        form = {"csrf": token, "back": f"{HOME}/failures", "seen": plan[1], **typed}
        for _ in range(2):  # it is still away
            answer = await client.post(f"{HOME}/failures/retry", data=form)
            assert answer.status_code == 503
            assert "2 tasks" in text_of(answer.text) and "<script>alert" not in answer.text
            action, fields = kept(answer.text)
            assert action == f"{HOME}/failures/retry" and ("reason", typed["reason"]) in fields
            assert str(proxy.port) not in answer.text
        proxy.restore()
        done = await sent_again(client, answer.text)
        assert done.status_code == 303 and "/operations/" in done.headers["location"]
        again = await sent_again(client, answer.text)  # a second click
        assert again.status_code == 303
        app.mended = True  # type: ignore[attr-defined]
        await work(app)
        operator = await app.operator(Caller("ann", Role.ADMIN))
        stories = [await operator.tasks.show(one) for one in await operator.tasks.meant(ids)]
        assert [one.timeline.task.replay_count for one in stories] == [1, 1, 0]


async def test_what_no_page_of_ours_has_sent_is_not_offered(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(app) as client:
        token = form_token(await page(client, "/queues"))

        async def away(*_: object) -> None:
            raise StoreUnavailable("the database is away")

        monkeypatch.setattr(app.access, "has_tokens", away)
        path, form = f"{HOME}/act/control.pause", {"target": "queue", "name": "default", "reason": "planted"}
        own = await client.post(path, data={"csrf": token, **form})
        assert own.status_code == 503 and "planted" in own.text
        for fields, headers in (
            (form, {}),
            ({**form, "csrf": "0" * 64}, {}),
            ({**form, "csrf": "\u202e"}, {}),
            ({**form, "csrf": token}, {"origin": "https://evil.example"}),
        ):
            answer = await client.post(path, data=fields, headers=headers)
            assert answer.status_code == 503 and "planted" not in answer.text and "<form" not in answer.text
        monkeypatch.setattr(app.access, "sign_in", away)
        signed = await client.post(f"{HOME}/sign-in", data={"token": "rdt_secret", "csrf": token})
        assert signed.status_code == 503 and "rdt_secret" not in signed.text
        assert '<input type="password" name="token" required' in signed.text  # asked for again


async def test_a_schedule_runs_once_for_one_form(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.periodic("SEND", cron="0 3 * * *", payload={"to": "x"}, name="nightly")
    async with console(app) as client:
        await work(app)
        html = await page(client, "/schedules")
        once = re.search(r'name="once" value="([^"]+)"', html)
        assert once
        store = await app.store()
        apply = store.apply

        async def lost(commit: Commit) -> None:
            await apply(commit)
            raise MayHaveLanded("the connection is gone")

        with monkeypatch.context() as patch:
            patch.setattr(store, "apply", lost)
            fields = {"name": "nightly", "reason": "now", "once": once[1]}
            answer = await send(client, "/act/schedules.run_now", fields, "/schedules")
        assert answer.status_code == 503 and "MAY_HAVE_LANDED" in answer.text
        landed = {(await sent_again(client, answer.text)).headers["location"] for _ in range(2)}
        assert len(landed) == 1  # the task that there is
        listed = await page(client, "/tasks?scope=schedule:nightly")
        assert len(set(re.findall(r'href="/ops/queue/tasks/([0-9a-f-]{36})"', listed))) == 1
        assert text_of(await page(client, "/audit")).count("SCHEDULE_RUN") == 1
        paused = await send(client, "/act/schedules.pause", {"name": "nightly", "reason": "holiday"}, "/schedules")
        assert paused.status_code == 303 and "holiday" in await page(client, "/schedules")
        assert (await send(client, "/act/schedules.run_now", {"name": "weekly"}, "/schedules")).status_code == 404
        fresh = await send(client, "/act/schedules.run_now", {"name": "nightly", "once": "another"}, "/schedules")
        assert fresh.headers["location"] not in landed
