"""The pages of projections: what they show, what can be done, and by whom."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.ops import access
from redrive.ops.access import Role
from redrive.outbox.event import Event
from redrive.outbox.source import Record
from redrive.outbox.verdict import Failed, Verdict
from tests.console.conftest import HOME, console, done, page, send, text_of
from tests.outbox.conftest import BOTH_STORES, World, make_app

pytestmark = pytest.mark.anyio
PAGE = "/outbox/notes"
VERIFY, NOTES = "/act/outbox.verify", {"projection": "notes"}


def figures(html: str) -> dict[str, str]:
    """The figures at the top of the page, by what stands below them."""
    return {label: n for n, label in re.findall(r"<b>([^<]*)</b><span>([^<:]*)", html)}


async def fail_two_and_leave_one(world: World) -> None:
    """One event is refused by the sink, one has an op that nobody knows, one is done and one waits."""
    await world.publish(1, "upsert", 1, {"title": "<b>first"})
    await world.publish(2, "upsert", 1, {"title": "second"})
    await world.publish(3, "nonsense", 1)

    def refuse(events: Sequence[Event]) -> dict[int, Verdict]:
        return {n: Failed("http_4xx", "mapping <i>error") for n, one in enumerate(events) if one.entity_id == "2"}

    world.sink.faults = [refuse]
    await world.drain()
    await world.publish(4, "upsert", 1, {"title": "fourth"})


@BOTH_STORES
async def test_the_list_and_the_page_show_the_same_figures_as_api(world: World) -> None:
    await fail_two_and_leave_one(world)
    async with console(world.app) as client:
        [row] = (await client.get("/api/outbox")).json()["items"]
        assert (row["lag"], row["failed"], row["done"], row["retries"], row["stuck"]) == (1, 2, 1, 0, 0)
        assert row["paused"] is None and row["workers"] == 0
        listed = await page(client, "/outbox")
        assert f'href="{HOME}{PAGE}"' in listed and "no worker" in text_of(listed)
        shown = await page(client, PAGE)
        seen = figures(shown)
        assert {name: seen[name] for name in ("lag", "in flight", "to retry", "stuck", "failed", "done")} == {
            "lag": "1",
            "in flight": "0",
            "to retry": "0",
            "stuck": "0",
            "failed": "2",
            "done": "1",
        }
        one = (await client.get("/api/outbox/notes")).json()
        assert {found["reason"]: found["events"] for found in one["failures"]} == {
            "http_4xx": 1,
            "deterministic_exception": 1,
        }
        for found in one["failures"]:
            link = re.search(rf'href="([^"]*errorReason={found["reason"]}[^"]*)"', shown)
            assert link, found
            tasks = await client.get(link[1].replace("&amp;", "&"))
            assert "Tasks that are failed now 1" in text_of(tasks.text)
        assert f'href="{HOME}{PAGE}">Look</a>' in await page(client), "what doctor finds leads to the projection"


@BOTH_STORES
async def test_events_that_fail_or_wait_are_listed_with_their_words(world: World) -> None:
    await fail_two_and_leave_one(world)
    async with console(world.app) as client:
        events = (await client.get("/api/outbox/notes")).json()["events"]
        told = [(one["entity"], one["status"], one["op"], one["version"], one["attempts"]) for one in events]
        assert told == [
            ("note:2", "failed", "upsert", 1, 1),
            ("note:3", "failed", "nonsense", 1, 1),
            ("note:4", "pending", "upsert", 1, 0),
        ]
        shown = await page(client, PAGE)
        assert "mapping &lt;i&gt;error" in shown and "<i>error" not in shown
        assert "Faulty" in text_of(shown) and "reachable" in text_of(shown)


async def test_a_sink_that_is_down_is_told_of_and_the_console_stays_ready(world: World) -> None:
    await world.publish(1, "upsert", 1, {})
    world.sink.unreachable = True
    async with console(world.app) as client:
        assert "not reachable ConnectionError" in text_of(await page(client, PAGE))
        assert (await client.get("/readyz")).status_code == 200, "whoever only looks does not depend on it"


@BOTH_STORES
async def test_retries_say_what_they_are_for(world: World) -> None:
    await world.app.close()
    patient = make_app(str(world.app.url), base_backoff_seconds=3600, max_backoff_seconds=3600)
    patient.outbox.projection("notes", sink=world.sink)
    for n in range(3):
        await patient.outbox.publish(None, "notes", "note", n, "upsert", 1, {})

    def down(events: Sequence[Event]) -> dict[int, Verdict]:
        raise ConnectionError("down")

    world.sink.faults = [down]
    await patient.worker(max_jobs=3).run()
    async with console(patient) as client:
        one = (await client.get("/api/outbox/notes")).json()
        assert (one["retries"], one["lag"], one["retried"]) == (3, 3, [{"reason": "connect", "events": 3}])
        assert all(event["nextRetryAt"] for event in one["events"])
        assert "3 connect" in text_of(await page(client, PAGE))


async def test_replay_looks_first_and_then_does_what_was_seen(world: World) -> None:
    await fail_two_and_leave_one(world)
    async with console(world.app) as client:
        dry = await page(client, f"{PAGE}/replay?limit=1")
        assert "Replay: 1 of 2 events" in text_of(dry) and "Nothing has been changed" in text_of(dry)
        assert figures(await page(client, PAGE))["failed"] == "2"
        refused = await send(client, f"{PAGE}/replay", {"number": "1"}, f"{PAGE}/replay?limit=1")
        assert refused.status_code == 422 and "the reason is missing" in refused.text
        told = await done(client, f"{PAGE}/replay", {"number": "1", "reason": "the mapping is mended"}, PAGE)
        assert "1 event is tried again" in text_of(told)
        seen = figures(told)
        assert (seen["failed"], seen["lag"]) == ("1", "2")
        await world.drain()
        assert (await world.versions())["note:2"] == 1
        tasks = {task.scope: task for task in await world.tasks()}
        assert tasks["note:2"].replay_count == 1
        audit = (await client.get("/api/tasks/audit-logs/export")).text
        assert "the mapping is mended" in audit
        wrong = await client.get(f"{HOME}{PAGE}/replay?limit=0")
        assert wrong.status_code == 422 and "imit is from 1" in wrong.text


async def test_a_replay_that_needs_a_second_person_says_so(world: World) -> None:
    await fail_two_and_leave_one(world)
    strict = make_app(str(world.app.url))
    strict.settings = strict.settings.with_values(approvals_above=1)
    strict.outbox.projection("notes", sink=world.sink)
    async with console(strict) as client:
        dry = await page(client, f"{PAGE}/replay")
        assert "A second person has to agree" in text_of(dry) and "Ask for approval" in text_of(dry)
        assert 'name="number"' not in dry
        refused = await send(client, f"{PAGE}/replay", {"number": "2", "reason": "mended"}, f"{PAGE}/replay")
        assert refused.status_code == 409
        assert figures(await page(client, PAGE))["failed"] == "2"


async def test_a_paused_projection_waits_and_says_by_whom(world: World) -> None:
    await world.publish(1, "upsert", 1, {})
    async with console(world.app) as client:
        fields = {"target": "queue", "name": "outbox:notes", "reason": "the index is moved"}
        told = text_of(await done(client, "/act/control.pause", fields, PAGE))
        assert "the index is moved" in told and "Resume the projection" in told
        await world.app.worker(stop_when_empty=True).run()
        [row] = (await client.get("/api/outbox")).json()["items"]
        assert (row["lag"], row["paused"]["reason"]) == (1, "the index is moved")
        await done(client, "/act/control.resume", fields, PAGE)
        await world.drain()
        assert figures(await page(client, PAGE))["lag"] == "0"


async def test_a_viewer_sees_and_cannot_act(world: World) -> None:
    await fail_two_and_leave_one(world)
    secret = (await access.create(await world.app.store(), "vic", Role.VIEWER, actor="admin")).secret
    async with console(world.app) as client:
        await client.post(f"{HOME}/sign-in", data={"token": secret})
        shown = await page(client, PAGE)
        assert figures(shown)["failed"] == "2"
        main = shown[shown.index("<main") :]
        assert 'method="post"' not in main and "Settings in force" not in main and "mapping" not in main
        for path in (f"{PAGE}/replay", f"{PAGE}/search?q=first"):
            assert (await client.get(HOME + path)).status_code == 403
        refused = await send(client, f"{PAGE}/replay", {"number": "2", "reason": "no"}, PAGE)
        assert refused.status_code == 403
        assert (await _bearer(client, secret))["settings"] is None
    assert sum(task.state.value == "failed" for task in await world.tasks()) == 2


async def _bearer(client: httpx.AsyncClient, secret: str) -> dict[str, Any]:
    answer = await client.get("/api/outbox/notes", headers={"Authorization": f"Bearer {secret}"})
    found: dict[str, Any] = answer.json()
    return found


async def test_documents_are_searched_where_the_sink_can(url: str, tmp_path: Any) -> None:
    app = make_app(url)
    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/found.db?name=notes")
    await app.migrate()
    await app.outbox.publish(None, "notes", "note", 1, "upsert", 1, {"title": "milk <b>and honey"})
    await app.worker(stop_when_empty=True).run()
    async with console(app) as client:
        shown = await page(client, PAGE)
        assert "Words in its documents" in shown and "SQLite full text" in shown and "found.db" in shown
        found = await page(client, f"{PAGE}/search?q=honey")
        assert "note:1" in found and "milk \\u003cb\\u003eand honey" in found
        assert "Nothing found" in await page(client, f"{PAGE}/search?q=bread")
        assert "Which words?" in await page(client, f"{PAGE}/search")


async def test_looking_makes_no_file(url: str, tmp_path: Any) -> None:
    app = make_app(url)
    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/none.db")
    await app.migrate()
    async with console(app) as client:
        assert "reachable" in text_of(await page(client, PAGE))
        assert not (tmp_path / "none.db").exists()


async def test_the_menu_has_the_outbox_when_somebody_uses_it(
    url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redrive.console.navigation.ASKED_EVERY_S", 0.0)
    app = make_app(url)
    await app.migrate()
    async with console(app) as client:
        assert f'href="{HOME}/outbox"' not in await page(client)
        event = {"entity_type": "note", "entity_id": "1", "op": "delete", "version": 1}
        name = "search_index_to_elastic"
        await app.enqueue(f"OUTBOX:{name}", event, queue=f"outbox:{name}")
        assert f'href="{HOME}/outbox"' in await page(client)
    declared = make_app(url)
    declared.outbox.projection("notes", sink=f"fts5:///{tmp_path}/search.db")
    async with console(declared) as client:
        assert f'href="{HOME}/outbox"' in await page(client)
        assert (await client.get(f"{HOME}/outbox/nope")).status_code == 404


async def test_the_page_is_live(world: World) -> None:
    await world.publish(1, "nonsense", 1)
    async with console(world.app) as client:
        topics = "menu,outbox,outbox-one:notes,outbox-charts:1h.notes"
        async with client.stream("GET", f"{HOME}/live", params={"topics": topics}, timeout=60) as stream:
            heard: dict[str, str] = {}
            worked = False
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    heard |= json.loads(line.removeprefix("data: ")).get("regions", {})
                if not worked and "#figures" in heard:
                    assert figures(heard["#figures"])["lag"] == "1" and "note:1" in heard["#events"]
                    worked = True
                    await world.drain()
                failed = figures(heard.get("#figures", "")).get("failed") == "1"
                if failed and heard.get("badge:outbox") == "1" and "#charts" in heard:
                    break
            assert "deterministic_exception" in heard["#failures"]
            assert heard["changed"] == "[True, True]" and "Throughput" in heard["#charts"]


class Kept:
    """A source in memory."""

    def __init__(self, **titles: str) -> None:
        self.records = {f"note:{n}": Record("note", n, 1, {"title": title}) for n, title in titles.items()}

    async def scan(self, after: str, limit: int) -> Sequence[Record]:
        return [self.records[key] for key in sorted(self.records) if key > after][:limit]

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        return [self.records[key] for key in keys if key in self.records]


@asynccontextmanager
async def served(app: App) -> AsyncIterator[None]:
    """A worker that carries operations out meanwhile."""
    worker = app.worker(concurrency=10)
    running = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await running


async def until(client: httpx.AsyncClient, words: str) -> str:
    """Returns the page as soon as it has these words."""
    async with asyncio.timeout(120):
        while words not in (shown := text_of(await page(client, PAGE))):
            await asyncio.sleep(0.1)
    return shown


async def test_verify_repair_and_rebuild_from_the_page(url: str, tmp_path: Path) -> None:
    app = make_app(url)
    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/found.db")
    app.outbox.source("notes")(Kept(a="apple", b="bean"))
    await app.migrate()
    await app.outbox.publish(None, "notes", "note", "a", "upsert", 1, {"title": "apple"})
    await app.outbox.publish(None, "notes", "note", "z", "upsert", 1, {"title": "zoo"})
    async with served(app), console(app) as client:
        await until(client, "Everything is done")
        assert "It was never rebuilt or compared" in text_of(await page(client, PAGE))
        told = text_of(await done(client, VERIFY, {**NOTES, "reason": "a look"}, PAGE))
        assert "It is compared with its source" in told
        found = await until(client, "1 extra")
        assert "1 missing note:b" in found and "note:z" in found
        await until(client, "differs Verify")
        await done(client, VERIFY, {**NOTES, "repair": "on"}, PAGE)
        await until(client, "2 repaired")
        await until(client, "repaired Verify")
        assert "note:b" in await page(client, f"{PAGE}/search?q=bean")
        assert "Nothing found" in await page(client, f"{PAGE}/search?q=zoo")
        missing = await send(client, f"{PAGE}/rebuild", {}, PAGE)
        assert missing.status_code == 422 and "the reason is missing" in missing.text
        assert "It is rebuilt" in text_of(await done(client, f"{PAGE}/rebuild", {"reason": "new fields"}, PAGE))
        await until(client, "completed Rebuild")
        assert "note:a" in await page(client, f"{PAGE}/search?q=apple")
        operation = (await client.get("/api/operations")).json()["operations"][0]
        assert (operation["action"], operation["reason"]) == ("rebuild", "new fields")


async def test_what_is_under_way_is_paused_and_stopped_from_the_page(url: str, tmp_path: Path) -> None:
    app = make_app(url)
    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/found.db")
    app.outbox.source("notes")(Kept(a="apple"))
    await app.migrate()
    async with console(app) as client:  # and no worker: it stays as it is
        shown = await done(client, VERIFY, NOTES, PAGE)
        operation = re.search(r'name="operation" value="([0-9a-f-]+)"', shown)
        assert operation and "Pause" in shown
        again = await send(client, VERIFY, NOTES, PAGE)
        assert again.status_code == 409 and "is under way" in again.text
        assert "Resume" in await done(client, "/act/operations.pause", {"operation": operation[1]}, PAGE)
        stopped = await done(client, "/act/operations.cancel", {"operation": operation[1]}, PAGE)
        assert "cancelled Verify" in text_of(stopped)
        begun = await client.post("/api/outbox/notes/verify")  # nothing has to be said
        assert (begun.status_code, begun.json()["operation"]["status"]) == (202, "running")


async def test_a_sink_without_an_index_cannot_be_rebuilt(world: World) -> None:
    async with console(world.app) as client:
        assert "Its sink has no index" in text_of(await page(client, PAGE))
