"""Every page of the console, on both stores, as somebody without scripts sees and uses it."""

from __future__ import annotations

import csv
import io
import re
from html import unescape
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI, Response

from redrive import App, Context, FailureRule
from redrive.console.navigation import ACTIONS, SECTIONS, actions_named
from redrive.console.routes import pages_router
from redrive.kernel.circuit import SetCircuit
from redrive.kernel.commit import Commit, Hold, Target
from redrive.kernel.operation import Status
from redrive.kernel.reads import Overview
from redrive.ops.access import Role
from tests.console.conftest import HOME, console, done, fail_some, make_app, page, send, text_of, work

pytestmark = pytest.mark.anyio


async def test_every_page_answers_on_an_empty_store(app: App) -> None:
    async with console(app) as client:
        items = [item.path for section in SECTIONS for item in section.items] + [item.path for item in ACTIONS]
        for path in dict.fromkeys([*items, "/find", "/who"]):
            found = await page(client, path)
            assert "<h1>" in found, path
            assert "style=" not in found, path


async def test_what_retried_tasks_would_wait_for_is_ended_where_it_is_told(app: App) -> None:
    await fail_some(app, 2)
    store = await app.store()
    hold = Hold(Target.QUEUE, "default", True, "ann", "the other side is down")
    circuit = SetCircuit("smtp", 0, ("SEND",), True, 60.0, "connect: ConnectionError", "w1", 0, 1)
    await store.apply(Commit(controls=[hold, circuit]))
    async with console(app) as client:
        text = text_of(await page(client, "/failures/preview"))
        assert "Queue default is paused by ann (the other side is down): 2 tasks of these would wait." in text
        assert "No live worker serves queue default: 2 tasks of these would wait. redrive work" in text
        fields = {"name": "smtp"}
        assert "Probe now" in text and "redrive circuits probe" not in text
        probed = text_of(await done(client, "/act/circuits.probe", fields, "/failures/preview"))
        assert "the next probe now: 2 tasks of these would wait." in probed
        await done(client, "/act/control.resume", {"target": "queue", "name": "default"}, "/failures/preview")
        assert "is paused" not in text_of(await page(client, "/failures/preview"))


async def test_a_page_that_fails_is_a_page_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    api = FastAPI()
    router = pages_router("broken")

    @router.get("")
    async def broken() -> Response:
        raise RuntimeError("no such column: secret")

    api.include_router(router)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://127.0.0.1") as client:
        answer = await client.get(f"{HOME}/broken")
    assert answer.status_code == 500 and answer.headers["content-type"].startswith("text/html")
    assert "could not be made" in answer.text and "PAGE_FAILED" in answer.text and "secret" not in answer.text
    (told,) = [record for record in caplog.records if getattr(record, "event", "") == "console.page_failed"]
    assert told.exc_info and "no such column" in str(told.exc_info[1])


async def test_the_way_from_a_failure_to_its_retry(app: App) -> None:
    async with console(app) as client:
        await done(client, "/who", {"name": "ann"}, "/who")
        ids = await fail_some(app, 60)
        overview = await page(client)
        assert "60 tasks failed by TASK_PRECONDITION_FAILED" in text_of(overview)
        fingerprint = re.search(r"/causes/([0-9a-f]{16})", overview)
        assert fingerprint
        assert f"/causes/{fingerprint[1]}" in await page(client, "/failures?kind=SEND")
        cause = await page(client, f"/causes/{fingerprint[1]}")
        assert "is locked in SEND" in text_of(cause) and "Retry these 60…" in text_of(cause)

        first = await page(client, f"/failures/preview?fingerprint={fingerprint[1]}")
        assert "Preview: 60 tasks match" in text_of(first)
        assert "Page 1 of 2" in text_of(first)
        assert 'href="#retry-all">Retry all 60…</a>' in first and '<section class="panel" id="retry-all">' in first
        following = re.search(r'rel="next" href="([^"]+)"', first)
        assert following
        second = (await client.get(following[1].replace("&amp;", "&"))).text
        ticked = re.findall(r'name="id" value="([0-9a-f-]{36})"', second)
        assert len(ticked) == 10
        assert set(ticked) <= set(ids)

        app.mended = True  # type: ignore[attr-defined]
        back = await done(client, "/failures/retry", {"id": ticked, "reason": "unlocked"}, "/failures/preview")
        assert "Retry of 10 tasks" in text_of(back) and "10 that were named" in text_of(back)
        await work(app)
        selected = re.search(r"/operations/[0-9a-f-]{36}", back)
        assert selected
        assert "10 retried: 10 completed." in text_of(await page(client, selected[0]))
        gone = await done(client, "/failures/retry", {"id": ticked, "reason": "once more"}, "/failures/preview")
        assert "none of what was ticked is failed any more" in text_of(gone)

        row = text_of(await page(client, f"/tasks/{ticked[0]}"))
        assert "TASK_RETRY_BATCH_ITEM by ann" in row
        assert "unlocked" in row
        assert "completed" in row

        begun = await done(
            client,
            "/failures/retry",
            {"all": "1", "kind": "SEND", "reason": "the rest", "canary": "5", "rate": "1000"},
            "/failures/preview?kind=SEND",
        )
        assert "Retry of 50 tasks" in text_of(begun)
        await work(app)
        operation = re.search(r"/operations/([0-9a-f-]{36})", begun)
        assert operation
        over = text_of(await page(client, f"/operations/{operation[1]}"))
        assert Status.COMPLETED.value in over
        assert "50 of 50 done" in over
        assert "50 retried: 50 completed." in over
        assert "Nothing is failed" in text_of(await page(client, "/failures"))


async def test_failures_are_shown_by_type_with_the_rules_for_them(app: App) -> None:
    app.registry.rules.table.append(
        FailureRule(status=[402], words=["<unpaid>"], reason="unpaid", failure_type="network", retry=False)
    )
    async with console(app) as client:
        await fail_some(app, 3)
        seen = await page(client, "/failures?kind=SEND")
        assert "By type" in text_of(seen) and "failureType=unknown" in seen and "kind=SEND" in seen
        assert "1 rule of the application" in text_of(seen)
        assert "status 402 and words &lt;unpaid&gt;" in seen and "<unpaid>" not in seen
        narrowed = await page(client, "/failures?failureType=timeout")
        assert "By type" not in text_of(narrowed) and "Nothing found" in text_of(narrowed)


async def test_everything_needs_a_second_person(app: App) -> None:
    async with console(app) as client:
        await done(client, "/who", {"name": "ann"}, "/who")
        await fail_some(app, 3)
        seen = await page(client, "/failures/preview")
        assert "A second person has to agree" in text_of(seen)
        fields = {"all": "1", "reason": "all", "fixed": "the lock", "idempotent": "yes"}
        waiting = await done(client, "/failures/retry", fields, "/failures/preview")
        assert "waiting" in text_of(waiting)
        asked = await page(client, "/approvals")
        approval = re.search(r'action="/ops/queue/approvals/([^"]+)"', asked)
        assert approval
        assert "You asked for it" in asked and 'value="approve"' not in asked and 'value="reject"' in asked
        operation = re.search(r'href="/ops/queue(/operations/[^"]+)"', asked)
        assert operation
        again = await page(client, operation[1])
        assert "It waits for a second person, because everything is retried. ann asked for it" in text_of(again)
        assert f'href="/ops/queue/approvals#{approval[1]}"' in again and f'id="{approval[1]}"' in asked
        own = await send(client, f"/approvals/{approval[1]}", {"do": "approve"}, "/approvals")
        assert own.status_code in (403, 409)
        await done(client, "/who", {"name": "bob"}, "/who")
        assert 'value="approve"' in await page(client, "/approvals")
        begun = await done(client, f"/approvals/{approval[1]}", {"do": "approve", "reason": "ok"}, "/approvals")
        assert "Approved; it has begun." in text_of(begun)


async def test_an_approval_says_what_it_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRIVE_APPROVALS_ABOVE", "3")
    app = make_app(f"sqlite:///{tmp_path}/console.db")
    async with console(app) as client:
        await done(client, "/who", {"name": "ann"}, "/who")
        await fail_some(app, 4)
        found = re.search(r"/causes/([0-9a-f]{16})", await page(client))
        assert found
        fields = {"all": "1", "fingerprint": found[1], "reason": "unlocked", "canary": "3"}
        await done(client, "/failures/retry", fields, f"/failures/preview?fingerprint={found[1]}")
        asked = await page(client, "/approvals")
        said = text_of(asked)
        assert "ann wants to retry 4 tasks" in said and "is locked TASK_PRECONDITION_FAILED Kinds SEND" in said
        assert f'href="{HOME}/causes/{found[1]}"' in asked
        assert "3 are tried; the others follow when 100 % of these succeed" in said
        approval = re.search(r'action="/ops/queue/approvals/([^"]+)"', asked)
        assert approval
        await done(client, "/who", {"name": "bob"}, "/who")
        await done(client, f"/approvals/{approval[1]}", {"do": "reject", "reason": "not yet"}, "/approvals")
        assert 'data-label="decided"><time' in await page(client, "/approvals")


async def test_queues_are_paused_resumed_and_limited(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        said = await done(
            client, "/act/control.pause", {"target": "queue", "name": "default", "reason": "deploy"}, "/queues"
        )
        assert "The queue default is paused." in text_of(said)
        assert "deploy" in said
        assert "The queue default is not paused." in text_of(
            await done(client, "/act/control.resume", {"target": "queue", "name": "default"}, "/queues")
        )
        limited = await done(client, "/queues/limit", {"name": "SEND", "concurrency": "3"}, "/queues")
        assert "0 of 3 at once" in text_of(limited)
        await app.enqueue("SEND", {"to": "t"}, queue="nobody")
        assert "no worker of queue nobody" in text_of(await page(client, "/queues"))
        unknown = await send(client, "/act/control.pause", {"target": "queue", "name": "defualt"}, "/queues")
        assert unknown.status_code == 422
        assert "known queues: " in text_of(unknown.text) and "default, nobody" in text_of(unknown.text)


async def test_circuits_are_shown_opened_probed_and_closed(app: App) -> None:
    async with console(app) as client:
        assert "Circuits" not in text_of(await page(client, "/queues")), "nobody has one"
        store = await app.store()
        await store.apply(Commit(controls=[SetCircuit("far", 0, ("SEND",), True, 300, "connect: refused", "w1", 2, 1)]))
        task = await app.enqueue("SEND", {"to": "t"})
        seen = text_of(await page(client, "/queues"))
        assert "far open" in seen and "connect: refused" in seen and ", 2 failed" in seen
        assert "circuit far" in seen
        assert "circuit far is open since" in text_of(await page(client, f"/tasks/{task.id}")).lower()
        asked = {"name": "far", "reason": "they say so"}
        said = text_of(await done(client, "/act/circuits.probe", asked, "/queues"))
        assert "the next task" in said
        said = text_of(await done(client, "/act/circuits.close", asked, "/queues"))
        assert "Circuit far is closed since" in said
        said = text_of(await done(client, "/act/circuits.close", asked, "/queues"))
        assert "Nothing to do: circuit far is closed since" in said
        for other in ("circuits.burn", "circuits.list", "ghosts.open"):
            assert (await send(client, f"/act/{other}", asked, "/queues")).status_code == 404


async def test_a_task_that_is_held_leads_to_what_ends_it(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        await done(client, "/act/control.pause", {"target": "kind", "name": "SEND", "reason": "deploy"}, "/queues")
        where = f"/tasks/{(await app.enqueue('SEND', {'to': 't'})).id}"
        held = await page(client, where)
        assert "Kind SEND is paused since 2" in text_of(held) and f'href="{HOME}/queues?q=SEND"' in held
        assert ">Resume kind SEND</button>" in held
        said = text_of(await done(client, "/act/control.resume", {"target": "kind", "name": "SEND"}, where))
        assert "The kind SEND is not paused." in said and "is paused since" not in said


async def test_causes_are_annotated(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        found = re.search(r"/causes/([0-9a-f]{16})", await page(client, "/failures"))
        assert found
        where = f"/causes/{found[1]}"
        said = await done(client, where, {"do": "note", "note": "a known bug", "owner": "bob"}, where)
        assert "a known bug" in said
        named = {"fingerprint": found[1]}
        assert "is muted" in text_of(await done(client, "/act/causes.mute", {**named, "span": "1h"}, where))
        assert "is open" in text_of(await done(client, "/act/causes.mute", {**named, "span": "0"}, where))
        assert "is resolved" in text_of(await done(client, "/act/causes.resolve", named, where))
        assert (await send(client, "/act/causes.mute", {**named, "span": "9y"}, where)).status_code == 422


async def test_words_are_searched_in_causes_and_tasks(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 3)
        found = text_of(await page(client, "/failures?q=t2+locked"))
        assert "Searched 3 tasks" in found
        assert "the shot t2 is locked" in found
        assert "the shot t1 is locked" not in found
        assert "Nothing found" in text_of(await page(client, "/failures?q=nowhere"))


async def test_the_search_field_goes_to_what_is_meant(app: App) -> None:
    async with console(app) as client:
        [task] = await fail_some(app, 1, trace_id="trace-77")
        for words, target in (
            (task, f"/tasks/{task}"),
            ("trace-77", "/tasks?traceId=trace-77"),
            ("SEND", "/tasks?kind=SEND"),
        ):
            answer = await client.get(f"{HOME}/find", params={"q": words})
            assert answer.headers["location"] == HOME + target
        assert "Nothing is called" in await page(client, "/find?q=zzzzz")


async def test_the_audit_log_is_filtered_and_exported(app: App) -> None:
    async with console(app) as client:
        [task] = await fail_some(app, 1)
        await done(client, "/who", {"name": "ann"}, "/who")
        await done(client, f"/tasks/{task}", {"do": "forget", "reason": "=1+1"}, f"/tasks/{task}")
        assert "TASK_FORGET" in text_of(await page(client, f"/audit?taskId={task}"))
        exported = await client.get(f"{HOME}/audit/export?format=csv&auditActor=ann")
        assert "attachment" in exported.headers["content-disposition"]
        rows = list(csv.DictReader(io.StringIO(exported.text)))
        assert rows
        assert all(not cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values() if cell)
        shown = text_of(await page(client, "/audit?since=1h"))
        assert "TASK_FORGET" in shown and rows[0]["at"][:10] in shown and " UTC" in shown
        later = await page(client, "/audit?since=1h&until=5m")
        assert "TASK_FORGET" not in text_of(later)
        assert "export?format=csv&amp;since=1h&amp;until=5m" in later
        assert "Since is not before until" in text_of(await page(client, "/audit?since=5m&until=1h", 422))
        none = await client.get(f"{HOME}/audit/export?format=csv&until=2020-01-01T02:30&auditActor=a/b%22")
        assert len(none.text.splitlines()) == 1
        named = r'attachment; filename="redrive-audit_\d{8}T\d{6}Z_actor-a-b_until-20200101T023000Z.csv"'
        assert re.fullmatch(named, none.headers["content-disposition"])
        assert "0 rows would be removed" in text_of(await page(client, "/audit/prune?olderThanDays=0&until=2020-01-01"))
        dry = text_of(await page(client, "/audit/prune?olderThanDays=0"))
        assert "would be removed" in dry


async def test_pauses_come_by_pages_and_are_read_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(app) as client:
        store = await app.store()
        held = [Hold(Target.QUEUE, f"far-{n:03}", True, "ann", "moved") for n in range(80)]
        await store.apply(Commit(controls=[*held, Hold(Target.KIND, "far-000", True, "ann", "moved")]))
        reads, overview = 0, store.overview

        async def counted() -> Overview:
            nonlocal reads
            reads += 1
            return await overview()

        monkeypatch.setattr(store, "overview", counted)
        path, seen = "/queues", list[tuple[str, str]]()
        while path:
            before, html = reads, await page(client, path)
            assert reads - before <= 2 and len(html) < 100_000  # one is the banner's
            paused = html.split("<h2>Queues</h2>")[0]
            seen += re.findall(r'<span class="tag paused">(\w+)</span> <span class="cut">(far-\d+)', paused)
            more = re.search(r'href="/ops/queue(/queues\?[^"]*)">More pauses', html)
            path = unescape(more[1]) if more else ""
        assert len(seen) == len(set(seen)) == 81
        assert "far-007" in text_of(await page(client, "/queues?q=far-007"))


async def test_what_is_not_there_is_said_on_a_page(app: App) -> None:
    async with console(app) as client:
        for path in ("/nope", f"/tasks/{uuid4()}", "/causes/ffffffffffffffff", "/operations/none"):
            assert "<h1>" in await page(client, path, 404)
        for path in (
            "/tasks/no-id",
            "/failures?before=x",
            "/failures/preview?page=0",
            "/?period=2h",
            "/tasks?state=odd",
            "/failures?knid=A",
            "/audit?scop=a",
            "/audit?scope=a&episodeId=b",
        ):
            text = await page(client, path.replace("/?", "?"), 422)
            assert "INPUT_INVALID" in text


async def test_many_queues_and_kinds_are_shown_in_pieces(app: App) -> None:
    for n in range(100):
        app.task(f"KIND_{n:03}", queue=f"queue-{n:03}")(_nothing)
    async with console(app) as client:
        first = await page(client, "/queues")
        assert len(first) < 110_000
        assert "KIND_035" in first and "KIND_036" not in first and "queue-034" in first and "queue-036" not in first
        seen, following = (
            set(re.findall(r"KIND_\d{3}", first)),
            re.findall(r'rel="next" href="/ops/queue([^"]+)"', first),
        )
        while links := [unescape(link) for link in following if "kind=" in link]:
            later = await page(client, links[0])
            seen |= set(re.findall(r"KIND_\d{3}", later))
            following = re.findall(r'rel="next" href="/ops/queue([^"]+)"', later)
        assert len(seen) == 100
        found = await page(client, "/queues?q=kind_07")
        assert set(re.findall(r"KIND_\d{3}", found)) == {f"KIND_07{n}" for n in range(10)}


async def _nothing(ctx: Context) -> None: ...


async def test_a_task_leads_to_its_relatives(app: App) -> None:
    async with console(app) as client:
        [one, same_scope] = await fail_some(app, 2)
        [same_trace] = await fail_some(app, 1, scope=None, trace_id="t1")
        [seen] = await fail_some(app, 1, scope="e2", trace_id="t1")
        found = await page(client, f"/tasks/{seen}")
        by = dict(re.findall(r"<h2>Others of the same (\w+)</h2>(.*?)</section>", found, re.DOTALL))
        ids = {name: set(re.findall(r"/tasks/([0-9a-f-]{36})", part)) for name, part in by.items()}
        assert ids == {"trace": {same_trace}, "cause": {one, same_scope, same_trace}}
        assert f"{HOME}/tasks?traceId=t1" in by["trace"]
        assert f"{HOME}/causes/" in by["cause"]
        assert "of the same scope</h2>" in await page(client, f"/tasks/{one}")


async def test_the_overview_says_how_long_each_kind_waits(app: App) -> None:
    async with console(app) as client:
        await fail_some(app, 1)
        await app.enqueue("SEND", {"to": "x"})
        found = await page(client)
        row = found[found.index('data-key="SEND"') :]
        assert "data-age" in row[: row.index("</tr>")]


async def test_actions_are_found_by_their_names(app: App) -> None:
    async with console(app) as client:
        for words, name, path in (
            ("pause", "Pause or resume a queue or kind", "/queues"),
            ("prune", "Prune the audit log", "/audit/prune"),
            ("run again", "Retry failed tasks", "/failures/preview"),
        ):
            found = (await client.get(f"{HOME}/find.json", params={"q": words})).json()
            assert {"what": "action", "name": name, "url": HOME + path} in found
            assert name in await page(client, f"/find?q={words}")
    assert [one.name for one in actions_named("audit", Role.VIEWER)] == ["Export the audit log", "Verify the audit log"]
    assert not actions_named("", Role.ADMIN)


async def test_a_preview_has_no_none_and_the_audit_log_no_json_in_strings(app: App) -> None:
    async with console(app) as client:
        [first, second] = await fail_some(app, 2)
        await done(client, f"/tasks/{first}", {"do": "forget", "reason": "old"}, f"/tasks/{first}")
        shown = await page(client, "/failures/preview?kind=SEND&forgotten=1")
        assert "2 tasks match" in text_of(shown) and "None" not in text_of(shown) and "forgotten" in text_of(shown)
        assert "1 task matches" in text_of(await page(client, "/failures/preview?kind=SEND"))
        log = text_of(await page(client, "/audit"))
        assert '"state": "failed"' in log and '\\"' not in log
        unsaid = await send(client, "/failures/retry", {"id": str(second)}, "/failures/preview?kind=SEND")
        assert unsaid.status_code == 422 and "is missing" in text_of(unsaid.text)


async def test_what_failed_again_is_counted_by_cause(app: App) -> None:
    async with console(app) as client:
        [failed, *_] = await fail_some(app, 3)
        assert 'value="cancel"' not in await page(client, f"/tasks/{failed}"), "forget is the name of it"
        fields = {"all": "1", "kind": "SEND", "reason": "again", "canary": "2", "then": "wait"}
        begun = await done(client, "/failures/retry", fields, "/failures/preview?kind=SEND")
        operation = re.search(r"/operations/([0-9a-f-]{36})", begun)
        assert operation and "then it waits for somebody to resume it" in text_of(begun)
        await work(app)
        assert "2 the shot t" in text_of(await page(client, f"/operations/{operation[1]}"))
        unsaid = await send(client, "/failures/retry", {**fields, "canary": ""}, "/failures/preview?kind=SEND")
        assert unsaid.status_code == 422 and "how many to try first" in text_of(unsaid.text)


async def test_what_has_failed_again_is_not_what_was_ticked(app: App) -> None:
    """Ann looks at a list; meanwhile somebody retries one of its tasks, and it fails again."""
    ids = await fail_some(app, 2)
    async with console(app) as client:
        plan = re.search(r'name="seen" value="([^"]+)"', await page(client, "/failures/preview"))
        assert plan
        await done(client, "/failures/retry", {"id": ids[:1], "reason": "once"}, "/failures/preview")
        await work(app)
        form = {"id": ids, "seen": plan[1], "reason": "what I saw"}
        said = text_of(await done(client, "/failures/retry", form, "/failures/preview"))
        assert "1 of the 2 that were ticked are retried" in said and "have failed again since" in said
        form = {"id": ids[:1], "seen": plan[1], "reason": "what I saw"}
        assert "Nothing was done" in text_of(await done(client, "/failures/retry", form, "/failures/preview"))
