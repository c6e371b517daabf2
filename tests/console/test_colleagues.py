"""Two people at the same thing: what one has done is not undone by what the other saw before."""

from __future__ import annotations

import re
from html import unescape

import pytest

from redrive import App
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.ports.store import Heartbeat
from redrive.ops import access
from redrive.ops.access import Caller, Role
from redrive.ops.inspect import parse_id
from redrive.ops.operations.drive import step
from tests.console.conftest import HOME, console, done, fail_some, page, send, text_of

pytestmark = pytest.mark.anyio


def field(html: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', html)
    assert found, name
    return unescape(found[1])


async def test_a_page_that_is_no_longer_true_does_nothing(app: App) -> None:
    async with console(app) as client:
        [failed] = await fail_some(app, 1)
        path = f"/tasks/{failed}"
        seen = field(await page(client, path), "seen")
        bea = await app.operator(Caller("bea", Role.OPERATOR))
        await bea.failures.forget([parse_id(failed)], "it is known")
        for what in ("retry", "forget"):
            told = text_of(await done(client, path, {"do": what, "seen": seen}, path))
            assert "Nothing was done: the task has changed since this page was made: it is cancelled now." in told
        assert (await bea.tasks.seen(parse_id(failed))).startswith("cancelled")
        # Who has looked again may do it.
        seen = field(await page(client, path), "seen")
        assert "It is queued again" in text_of(await done(client, path, {"do": "retry", "seen": seen}, path))


async def test_a_note_does_not_take_a_colleagues_words_away(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        bea = await app.operator(Caller("bea", Role.OPERATOR))
        [cause] = (await bea.causes.list(limit=1)).causes
        path, owned = f"/causes/{cause.row.fingerprint}", {"was_owner": "", "owner": ""}
        await bea.causes.annotate(cause.row.fingerprint, None, note="restarting it", owner="bea")
        form = {"do": "note", "was_note": "", "note": "mine", **owned}
        told = text_of(await done(client, path, form, path))
        assert "Nothing was saved: meanwhile somebody has set the note to 'restarting it'." in told
        form["was_note"] = "restarting it"
        assert "Saved." in text_of(await done(client, path, form, path))
        found = await bea.causes.get(cause.row.fingerprint)
        assert (found.note, found.owner) == ("mine", "bea")


async def test_who_has_a_token_is_not_asked_for_a_name(app: App) -> None:
    async with console(app) as client:
        made = await access.create(await app.store(), "ann", Role.VIEWER, actor="admin")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        answer = await client.get(f"{HOME}/who")
        assert answer.status_code == 303
        assert "no tokens" not in (await client.get(HOME)).text


async def test_a_long_payload_is_not_nothing(app: App) -> None:
    async with console(app) as client:
        task = await app.enqueue("SEND", {"to": "x" * 900_000})
        found = await page(client, f"/tasks/{task.id}")
        assert "open it by itself" in found and "It carries nothing" not in found


async def test_a_limit_takes_no_colleagues_limit_away(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        seen = {"name": "SEND", "was_concurrency": "", "was_rate_ms": ""}  # both have the page open

        async def sets(**fields: str) -> str:
            return text_of(await done(client, "/queues/limit", {**seen, **fields}, "/queues"))

        assert "are set" in await sets(concurrency="", rate_ms="500")
        assert "0 of 7 at once, 500 ms apart" in await sets(concurrency="7", rate_ms="")
        assert "meanwhile somebody has set rate_ms of SEND to 500" in await sets(concurrency="", rate_ms="900")
        html = await page(client, "/queues")
        assert 'name="was_concurrency" value="7"' in html and 'name="was_rate_ms" value="500"' in html
        seen |= {"was_concurrency": "7", "was_rate_ms": "500"}
        assert "500 ms apart" in (lifted := await sets(concurrency="", rate_ms="500")) and "of 7 at once" not in lifted


async def test_who_asked_reads_why_it_was_rejected(app: App) -> None:
    async with console(app) as client:
        await done(client, "/who", {"name": "ann"}, "/who")
        await fail_some(app, 1)
        fields = {"all": "1", "reason": "all of them", "fixed": "the lock", "idempotent": "yes"}
        await done(client, "/failures/retry", fields, "/failures/preview")
        approval = re.search(r'action="/ops/queue(/approvals/[^"]+)"', await page(client, "/approvals"))
        assert approval
        await done(client, "/who", {"name": "bob"}, "/who")
        refused = await send(client, approval[1], {"do": "reject", "reason": ""}, "/approvals")
        assert "Why it is rejected is missing: fill it in." in text_of(refused.text)
        rejected = await done(client, approval[1], {"do": "reject", "reason": "not before noon"}, "/approvals")
        assert "not before noon" in text_of(rejected) and "all of them" not in text_of(rejected)


async def test_a_store_that_is_away_is_not_named(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.errors import StoreUnavailable

    async with console(app) as client:
        store = await app.store()

        async def away() -> None:
            raise StoreUnavailable("PostgreSQL database 'night' at 10.0.0.7:5432 does not answer")

        monkeypatch.setattr(store, "overview", away)
        found = await page(client, "/workers", 503)
        assert "10.0.0.7" not in found and "night" not in found and "does not answer" in found


async def test_an_unknown_task_has_nothing_to_be_done(app: App) -> None:
    async with console(app) as client:
        [failed] = await fail_some(app, 1)
        answer = await send(client, f"/tasks/{failed}", {"do": "retry", "seen": "failed:999"}, f"/tasks/{failed}")
        assert answer.status_code == 303
        assert "by another failure" in text_of((await client.get(answer.headers["location"])).text)


async def test_a_mistake_leads_back_to_where_it_was_made_and_nowhere_else(app: App) -> None:
    async with console(app) as client:
        wrong = f"{HOME}/failures?since=yesterday"
        came = str(client.base_url).rstrip("/") + f"{HOME}/failures?kind=%3Cb%3E"
        assert (
            'href="/ops/queue/failures?kind=%3Cb%3E">Back' in (await client.get(wrong, headers={"referer": came})).text
        )
        for other in ("https://elsewhere.example/ops/queue", f"{client.base_url}/api/tasks", "javascript:alert(1)"):
            assert ">Back" not in (await client.get(wrong, headers={"referer": other})).text


async def test_a_queue_waits_for_the_pause_of_its_kind(app: App) -> None:
    async with console(app) as client:
        await app.enqueue("SEND", {"to": "a"})
        paused = await done(client, "/act/control.pause", {"target": "kind", "name": "SEND", "reason": "x"}, "/queues")
        assert "no worker" in text_of(paused)
        await (await app.store()).tick(Heartbeat("w1", "host", 1, ("default",), 4, 0, "0", {}))
        html = text_of(await page(client, "/queues"))
        assert re.search(r"paused kind SEND by [^:]*: 1", html) and "a free slot" not in html


async def test_who_approves_a_purge_reads_what_becomes_of_the_tasks(app: App) -> None:
    async with console(app) as client:
        for n in range(2):
            await app.enqueue("SEND", {"to": str(n)})
        carol = await app.operator(Caller("carol", Role.ADMIN))
        await carol.control.pause("kind", "SEND", "flood")
        begun = await carol.operations.begin(Action.PURGE, FailureFilter(kind="SEND"), reason="clean up")
        assert begun.approval is not None
        html = await page(client, "/approvals")
        assert "2 waiting tasks become cancelled, and do not run; each can be retried by its id" in text_of(html)
        assert "kind SEND was paused by carol" in text_of(html) and "The first waits since" in text_of(html)
        assert f'href="{HOME}/tasks?kind=SEND&amp;state=paused"' in html
        bob = await app.operator(Caller("bob", Role.OPERATOR))
        await bob.approvals.approve(begun.approval.id)
        store = await app.store()
        while await step(store, begun.operation.id, "w1") is not None:
            pass
        path = f"/operations/{begun.operation.id}"
        assert "2 tasks became cancelled" in text_of(await page(client, path))
        assert "Retry of 2 tasks" in text_of(
            await done(client, "/act/operations.put_back", {"operation": begun.operation.id}, path)
        )
