"""Every filter of failures: it narrows the list, and stays with its pages, the preview, the retry and the command."""

from __future__ import annotations

import re
import shlex
from datetime import timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from redrive import App, Context, Fail
from redrive.console.live import sampler
from redrive.console.mount import TOPICS
from redrive.console.pages import failures
from redrive.kernel.failure_filter import FailureFilter
from redrive.observe.logs import TaskLog
from redrive.ops import access, causes
from redrive.ops.access import Caller, Role
from redrive.ops.shell import shell_for
from redrive.settings import Options
from tests.console.conftest import HOME, console, fail_some, page, send, text_of, work

pytestmark = pytest.mark.anyio
ONE = {
    "kind": "ODD",
    "queue": "aside",
    "group": "g",
    "scope": "s='1&2\" $(x) <b>",
    "trace_id": "t/1?",
    "payload": {"n": 1},
}


async def filled(app: App) -> App:
    """Adds 60 failures of one kind, and one that is different in everything."""

    @app.task("ODD", max_attempts=1)
    async def odd(ctx: Context, n: int) -> None:
        raise TimeoutError("no answer")

    @app.task("MANY", max_attempts=1)
    async def many(ctx: Context, n: int) -> None:
        raise Fail("SHOT_LOCKED", "no")

    await app.enqueue_many([{"kind": "MANY", "payload": {"n": n}} for n in range(60)])
    await work(app)
    await app.enqueue(**ONE)  # type: ignore[arg-type]
    return app


@pytest.fixture
async def served(app: App) -> App:
    return await filled(app)


async def one_of(app: App) -> dict[str, str]:
    """The filters that only the odd one matches."""
    store = await app.store()
    await app.worker(store, Options(queues=("aside",), stop_when_empty=True), log=TaskLog(style="off")).run()
    [task] = await store.failed(FailureFilter(kind="ODD"), limit=1)
    assert task.failed_at and task.error_code and task.error_reason and task.failure_type and task.error_fingerprint
    last = max(one.failed_at for one in await store.failed(FailureFilter(kind="MANY"), limit=100) if one.failed_at)
    return {
        "scope": str(task.scope),
        "episodeId": str(task.scope),
        "kind": "ODD",
        "jobKind": "ODD",
        "queue": "aside",
        "group": "g",
        "traceId": str(task.trace_id),
        "errorCode": task.error_code,
        "errorReason": task.error_reason,
        "failureType": str(task.failure_type),
        "deadReason": str(task.dead_reason),
        "fingerprint": task.error_fingerprint,
        "since": (last + timedelta(microseconds=1)).isoformat(),
    }


def rows(text: str) -> int:
    return len(set(re.findall(r"/ops/queue/tasks/([0-9a-f-]{36})", text)))


async def test_each_narrows_and_is_kept_from_the_list_to_the_retry(any_app: App) -> None:
    served = await filled(any_app)
    async with console(served) as client:
        for name, value in (await one_of(served)).items():
            query = str(httpx.QueryParams({name: value}))
            listed = await page(client, f"/failures?{query}")
            assert rows(listed) == 1, name
            await _narrows_to_one(client, listed, name)


async def _narrows_to_one(client: httpx.AsyncClient, listed: str, name: str) -> None:
    link = re.search(r'href="/ops/queue(/failures/preview[^"]*)"', listed)
    assert link, name
    seen = await page(client, unescape(link[1]))
    assert "Preview: 1 task matches" in text_of(seen), name
    command = re.search(r"<code>redrive retry (--[^<]*?) --reason WHY[^<]*</code>", seen)
    assert command, name
    option, *value = shlex.split(unescape(command[1]))
    assert option.startswith("--") and value, name
    if name in ("scope", "traceId"):
        assert value == [ONE["scope" if name == "scope" else "trace_id"]]
    live = re.search(r'data-live="([^"]*)"', listed)
    assert live and "%253D" in live[1].replace("%3D", "%253D"), name  # what is counted as new is what is listed


async def test_pages_keep_the_filter(served: App) -> None:
    async with console(served) as client:
        await one_of(served)
        for query in ("kind=MANY", "errorCode=SHOT_LOCKED", "since=1h&until=2100-01-01T00:00"):
            await _pages_keep(client, query)


async def _pages_keep(client: httpx.AsyncClient, query: str) -> None:
    seen: list[str] = []
    path = f"/failures?{query}"
    while True:
        listed = await page(client, path)
        tasks = listed[listed.index("data-list") :]
        seen += dict.fromkeys(re.findall(r"/ops/queue/tasks/([0-9a-f-]{36})", tasks))
        following = re.search(r'rel="next" href="/ops/queue([^"]+)"', tasks)
        if not following:
            break
        path = unescape(following[1])
        assert all(part in path for part in query.replace(":", "%3A").split("&"))
    wanted = 61 if "since" in query else 60
    assert len(seen) == len(set(seen)) == wanted


async def test_all_that_failed_in_a_time_are_retried_and_no_others(served: App) -> None:
    async with console(served) as client:
        since = (await one_of(served))["since"]
        until = str(httpx.QueryParams({"until": since}))
        begun = await send(
            client,
            "/failures/retry",
            {"all": "1", "until": since, "reason": "again"},
            f"/failures/preview?{until}",
        )
        assert begun.status_code == 303, begun.text[:500]
        operation = await client.get(begun.headers["location"])
        assert "Retry of 60 tasks" in text_of(operation.text)
        assert "until:" in text_of(operation.text)
        await work(served)
        store = await served.store()
        again = await store.failed(FailureFilter(), limit=100)
        assert {task.kind: task.replay_count for task in again} == {"MANY": 1, "ODD": 0}


async def test_what_is_no_time_is_refused_with_what_would_be(served: App) -> None:
    async with console(served) as client:
        for query in ("since=yesterday", "since=1h&until=2h", "until=2026-13-01", "since=999999w"):
            answer = await client.get(f"{HOME}/failures?{query}")
            assert answer.status_code == 422, query
            assert "since" in answer.text or "until" in answer.text
        assert 'value="1h"' in await page(client, "/failures?since=1h")  # as it was typed
        assert (await client.get(f"{HOME}/dead-letters?since=1h")).status_code == 422


async def test_a_filtered_list_hears_of_its_own_failures(app: App) -> None:
    """As its script reads the topic from the page, and the server from the address."""
    async with console(app) as client:
        await fail_some(app, 2, scope="a, b&c=d")
        await fail_some(app, 3)
        seen = await client.get(f"{HOME}/failures", params={"scope": "a, b&c=d"})
        live = re.search(r'data-live="([^"]*)"', seen.text)
        assert live
        _, topic = unescape(live[1]).split(",")
        operator = await app.operator(Caller("ann", Role.OPERATOR))
        newest = re.search(r'data-newest="(\d+)"', seen.text)
        assert newest and await sampler(topic, TOPICS)(operator) == {"failures": f"{newest[1]},{int(newest[1]) - 1}/2"}


async def test_what_has_to_be_counted_is_counted_so_far_and_done_in_full(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By time no totals are kept: a page counts some of them, the operation means all."""
    monkeypatch.setattr(failures, "MOST_COUNTED", 5)
    monkeypatch.setattr(causes, "MOST_TASKS", 3)
    async with console(app) as client:
        await fail_some(app, 8)
        seen = await page(client, "/failures/preview?since=1h")
        assert "Preview: 5+ tasks match" in text_of(seen) and "Retry all 5+" in seen and "Page 1 of 1+" in seen
        plan = re.search(r'name="plan" value="([^"]+)"', seen)
        assert plan
        await fail_some(app, 2)
        begun = await send(client, "/failures/retry", {"all": "1", "plan": plan[1], "reason": "mended"}, "/failures")
        assert "Retry of 8 tasks" in text_of((await client.get(begun.headers["location"])).text)
        listed = await page(client, "/failures?since=1h")
        assert 'data-label="failed now">3+</td>' in listed
        assert "3+</td>" not in await page(client, "/failures")  # totals are exact


@pytest.mark.parametrize(
    ("url", "shown", "said"),
    [
        ("sqlite:///redrive.db", None, "redrive stats"),
        ("sqlite:////srv/it's/r.db", None, """redrive stats --url 'sqlite:////srv/it'"'"'s/r.db'"""),
        ("postgresql://ops@db/redrive", None, "redrive stats --url postgresql://ops@db/redrive"),
        ("postgresql://ops:secret@db/redrive", "postgresql://ops:***@db/redrive", "redrive stats"),
    ],
)
def test_commands_name_the_store_and_no_secret(url: str, shown: str | None, said: str) -> None:
    made = shell_for(url, shown or url)
    assert made.of("redrive stats") == said
    assert (made.note is None) is (shown is None) and "secret" not in f"{made}"


def test_a_file_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert shell_for("sqlite:///try.db", "sqlite:///try.db").option == f" --url sqlite:///{tmp_path}/try.db"


async def test_who_may_not_see_settings_is_not_told_where_the_store_is(app: App) -> None:
    async with console(app) as client:
        [failed] = await fail_some(app, 1)
        assert f"redrive show {failed} --url sqlite:////" in await page(client, f"/tasks/{failed}")
        made = await access.create(await app.store(), "vic", Role.VIEWER, actor="admin")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        [cause] = (await (await app.operator(Caller("vic", Role.VIEWER))).causes.list()).causes
        seen = await page(client, f"/causes/{cause.row.fingerprint}")
        assert f"redrive causes show {cause.row.fingerprint}" in seen and "--url" not in seen


async def test_lists_hear_what_comes_first_now(any_app: App) -> None:
    """A page counts those that it does not have: its own first row is the last that it knows."""
    async with console(any_app) as client:
        for path in ("/tasks?state=failed&kind=SEND", "/dead-letters?kind=SEND", "/audit?auditActor=ann"):
            await _hears(any_app, client, path)


async def _hears(any_app: App, client: httpx.AsyncClient, path: str) -> None:
    await fail_some(any_app, 1)
    ann = await any_app.operator(Caller("ann", Role.ADMIN))
    await ann.control.pause("kind", "SEND", "for a while")
    seen = await page(client, path)
    live, newest = re.search(r'data-live="([^"]*)"', seen), re.search(r'data-newest="([^"]+)"', seen)
    assert live and newest
    _, topic = unescape(live[1]).split(",")
    sample = sampler(topic, TOPICS)
    assert (await sample(ann))["listed"].split(",")[0] == newest[1]
    await ann.control.resume("kind", "SEND", None)
    await fail_some(any_app, 2)
    first = (await sample(ann))["listed"].split(",")
    assert first.index(newest[1]) == (1 if "audit" in path else 2)
    assert all(one > newest[1] or len(one) > len(newest[1]) for one in first[: first.index(newest[1])])
