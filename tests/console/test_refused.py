"""What is refused: a form comes back as it was filled in, with what is wrong beside its field; no dead ends."""

from __future__ import annotations

import asyncio
import re
from html import unescape
from typing import Any

import pytest

from redrive import App
from redrive.console.refill import refill
from redrive.errors import StoreUnavailable
from redrive.ops import access
from redrive.ops.access import Caller, Role
from tests.console.conftest import HOME, console, fail_some, page, send, text_of, work

pytestmark = pytest.mark.anyio


def tag(html: str, name: str) -> str:
    """The field of this name that somebody has filled in wrong."""
    [found] = [one for one in re.findall(r"<(?:input|select)[^>]*>", html) if "aria-invalid" in one]
    assert f'name="{name}"' in found, found
    return str(found)


def carried(html: str, action: str, having: str) -> dict[str, str]:
    """What a form of the page carries along besides what people type: the one that has this field, hidden too."""
    for form in re.findall(rf'<form[^>]*action="{HOME}{action}".*?</form>', html, re.DOTALL):
        hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
        if having in hidden:
            return {name: unescape(value) for name, value in hidden.items() if name not in ("csrf", "back")}
    raise AssertionError(f"no form of {action} has {having}")


WRONG: list[tuple[dict[str, str], str, str]] = [
    ({"canary": "hundred"}, "canary", "must be a whole number, not 'hundred'"),
    ({"canary": "0"}, "canary", "canary) is at least 1, not 0"),
    ({"percent": "300"}, "percent", "at most 100, not 300"),
    ({"rate": "-1"}, "rate", "Tasks a second is at least 0.001, not -1"),
    ({"reason": "a\x01b"}, "reason", "contains control characters"),
    ({"then": "wait", "canary": ""}, "canary", "not said how many to try first"),
]


async def test_a_refused_operation_keeps_what_was_typed(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 3)
        path = "/failures/preview?kind=SEND"
        sent = {
            **carried(await page(client, path), "/failures/retry", "all"),
            "reason": 'the "farm" is back',
            "rate": "5",
            "canary": "2",
            "percent": "80",
        }
        for wrong, field, said in WRONG:
            answer = await send(client, "/failures/retry", {**sent, "stop_on_return": "on", **wrong}, path)
            html = answer.text
            assert answer.status_code == 422
            assert "tasks match" in html and 'aria-label="Pages"' in html  # it is the page of the form
            assert 'id="wrong" role="alert">' in html and said in text_of(html)
            assert 'aria-describedby="wrong"' in tag(html, field)
            for name, value in {**sent, **wrong}.items():
                if name in ("rate", "percent", "reason") and value.isprintable():
                    assert f'value="{value.replace(chr(34), "&quot;")}"' in html, name
            assert re.search(r'<input type="checkbox" name="stop_on_return"[^>]* checked>', html)
            if "then" in wrong:
                assert '<option value="wait" data-option="--then wait" selected>' in html
        assert "No operation yet" in await page(client, "/operations")


async def test_ticks_are_kept_and_what_is_missing_is_said_at_the_form(app: App) -> None:
    async with console(app) as client:
        ids = await fail_some(app, 3)
        path = "/failures/preview"
        fields: dict[str, Any] = {"here": f"{HOME}{path}", "id": ids[:2], "reason": "x\x07"}
        html = (await send(client, "/failures/retry", fields, path)).text
        assert len(re.findall(r'<input type="checkbox" name="id"[^>]* checked>', html)) == 2
        none = await send(client, "/failures/retry", {"here": f"{HOME}{path}", "reason": "again"}, path)
        assert none.status_code == 422
        assert re.search(r'<form[^>]*>\s*<p class="notice bad" role="alert">Nothing is ticked', none.text)
        assert 'value="again"' in none.text


async def test_the_form_of_a_row_is_opened_again(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        html = (await send(client, "/queues/limit", {"name": "SEND", "concurrency": "many"}, "/queues")).text
        [row] = [one for one in html.split("<tr>") if 'aria-invalid="true"' in one]
        assert (
            'name="name" value="SEND"' in row and "<details open>" in row and 'value="many"' in tag(html, "concurrency")
        )


async def test_a_filter_that_means_nothing_can_be_put_right(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        for path in ("/failures", "/failures/preview"):
            html = await page(client, f"{path}?kind=SEND&since=yesterday", 422)
            assert 'aria-label="Pages"' in html and "Something is wrong with what was asked" in html
            if path == "/failures":  # the preview has no form of filters
                assert 'value="yesterday"' in tag(html, "since") and 'name="kind" value="SEND"' in html
                assert "Tasks that are failed now" not in html  # nothing that was not asked for


async def test_every_refusal_keeps_the_menu_of_its_role(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(app) as client:
        made = await access.create(await app.store(), "vic", Role.VIEWER, actor="admin")
        assert 'aria-label="Pages"' not in await page(client, "/nope", 404)  # nobody is signed in
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        for path, status in (("/nope", 404), ("/settings", 403), ("/tasks/01a1", 422), ("/causes/0000", 404)):
            html = await page(client, path, status)
            assert 'aria-label="Pages"' in html and f'href="{HOME}/failures"' in html
            assert f'href="{HOME}/settings"' not in html  # the role may not see it

        async def away(*_: object) -> None:
            raise StoreUnavailable("PostgreSQL database 'night' at 10.0.0.7:5432 does not answer")

        monkeypatch.setattr(await app.store(), "overview", away)
        html = await page(client, "/workers", 503)
        assert f'href="{HOME}/workers">Try again</a>' in html and "night" not in html


async def test_what_is_no_longer_possible_is_said_where_it_was_asked(app: App) -> None:
    async with console(app) as client:
        [failed] = await fail_some(app, 1)
        app.mended = True  # type: ignore[attr-defined]
        operator = await app.operator(Caller("bea", Role.OPERATOR))
        await operator.tasks.retry((await operator.tasks.meant([failed]))[0])
        await work(app)
        answer = await send(client, f"/tasks/{failed}", {"do": "retry", "reason": "once more"}, f"/tasks/{failed}")
        assert answer.status_code == 409 and 'aria-label="Pages"' in answer.text


def test_only_the_form_that_was_sent_is_filled_in() -> None:
    page = """<form action="/a" method="post"><input type="hidden" name="n" value="1"><textarea name="t">old</textarea>
<select name="s"><option>x</option><option value="y">Y</option></select><input name="q"></form>
<form action="/a"><input type="hidden" name="n" value="2"><input name="q" value="&lt;b&gt;"></form>"""
    found = refill(page, "/a", {"n": ["1"], "t": ["<new>"], "s": ["y"], "q": ['"']}, "q is <odd>.")
    assert found is not None
    first, second = found[0].split("</form>")[:2]
    assert "&lt;new&gt;</textarea>" in first and '<option value="y" selected>' in first
    assert 'name="q" value="&quot;" aria-invalid="true"' in first and "Q is" not in first
    assert 'role="alert">q is &lt;odd&gt;.</span>' in first and second == page.split("</form>")[1]
    assert refill(page, "/b", {"q": ["1"]}, "no") is None


async def test_a_refused_address_that_is_no_page_stops_nobody(app: App) -> None:
    """An export, or a stream that never ends, was looked through for a form: for ever, on the loop."""
    async with console(app) as client:
        await fail_some(app, 1)
        assert (await client.get(f"{HOME}/audit/export?kinds=a", timeout=60)).status_code == 422
        for address in ("/audit/export", "/live"):
            fields = {"name": "SEND", "concurrency": "many", "here": HOME + address}
            answer = await asyncio.wait_for(send(client, "/queues/limit", fields), 60)
            assert answer.status_code == 422 and "Something is wrong with what was asked" in answer.text
        assert "Overview" in await page(client)


async def test_what_was_typed_for_a_row_that_is_gone_stands_in_no_other(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        answer = await send(client, "/queues/limit", {"name": "GONE", "concurrency": "1x"}, "/queues")
        assert answer.status_code == 422 and 'value="1x"' not in answer.text
        assert "must be a whole number" in text_of(answer.text)


async def test_a_colleagues_change_is_not_undone_by_a_form_that_came_back(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        operator = await app.operator(Caller("bob", Role.OPERATOR))
        [cause] = (await operator.causes.list()).causes
        path = f"/causes/{cause.row.fingerprint}"
        seen = carried(await page(client, path), path, "was_owner")
        await operator.causes.annotate(cause.row.fingerprint, None, owner="bob")
        refused = await send(client, path, {**seen, "do": "note", "owner": "", "note": "pasted\tcells"}, path)
        assert refused.status_code == 422
        again = carried(refused.text, path, "was_owner")
        assert again["was_owner"] == seen["was_owner"], "what she had seen, not what is there now"
        answer = await send(client, path, {**again, "do": "note", "owner": "", "note": "pasted cells"}, path)
        assert answer.status_code == 303
        shown = await operator.causes.get(cause.row.fingerprint)
        assert (shown.owner, shown.note) == ("bob", "pasted cells")


async def test_a_preview_that_came_back_is_still_of_the_same_set(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 4)
        path = "/failures/preview?kind=SEND"
        sent = carried(await page(client, path), "/failures/retry", "plan")
        await fail_some(app, 3)
        refused = await send(client, "/failures/retry", {**sent, "reason": "again", "canary": "two"}, path)
        assert refused.status_code == 422 and 'value="two"' in refused.text
        assert carried(refused.text, "/failures/retry", "plan")["plan"] == sent["plan"]
        assert "4 tasks match" in text_of(refused.text)
