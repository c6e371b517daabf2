"""What open pages are told, and what that costs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from redrive import App
from redrive.console import live
from redrive.console.live import Admitted, Live, seldom
from redrive.console.mount import TOPICS
from redrive.console.regions import history
from redrive.errors import TooManyStreams
from redrive.ops import access
from redrive.ops.access import Caller, Role
from redrive.ops.operator import Operator
from redrive.settings import Options
from tests.api.conftest import another
from tests.console.conftest import HOME, console, fail_some, page, send, text_of, work

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def sampled_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.1)
    monkeypatch.setattr(history, "DRAWN_IN_A_STEP", 300)


async def told(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """The messages of a stream; ``{"over": True}`` when the server ends it. Without those that say that there is no
    news: they come when nothing else did for a while, so whenever the machine is slow."""
    event = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            event = line[7:]
        if line.startswith("data: "):
            if event != "beat":
                yield {"over": True} if event == "over" else json.loads(line[6:])
            event = ""


async def regions(stream: AsyncIterator[dict[str, Any]], name: str) -> str:
    """The next text of a region."""
    async for message in stream:
        if name in message.get("regions", {}):
            return str(message["regions"][name])
    raise AssertionError(f"the stream ended without {name}")


async def until(stream: AsyncIterator[dict[str, Any]], name: str, text: str) -> None:
    """Read on until a region says the text: what is sampled in between may say less."""
    while text not in await regions(stream, name):
        pass


def listen(client: httpx.AsyncClient, topics: str) -> Any:
    return client.stream("GET", f"{HOME}/live", params={"topics": topics})


async def test_an_open_overview_hears_of_failures(app: App) -> None:
    async with console(app) as client, asyncio.timeout(150), listen(client, "menu,overview") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = told(answer)
        assert await regions(stream, "badge:failed") == ""
        await fail_some(app, 2)
        await until(stream, "badge:failed", "2")
        await until(stream, "#problems", "2 tasks failed by TASK_PRECONDITION_FAILED")


async def test_many_open_pages_cost_the_store_what_one_does(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    sampled: list[str] = []
    once = live.sampler

    def counted(topic: str, topics: Any) -> Any:
        sample = once(topic, topics)

        async def counting(operator: Any) -> Any:
            sampled.append(topic)
            return await sample(operator)

        return counting

    monkeypatch.setattr(live, "sampler", counted)
    async with console(app) as client, asyncio.timeout(150):
        hub: Live = client.live  # type: ignore[attr-defined]

        async def one() -> None:
            async with listen(client, "overview") as answer:
                await regions(told(answer), "#totals")
                reached.append(1)
                if len(reached) == 50:
                    feeds.append(len(hub._feeds))
                    await asyncio.sleep(0.5)
                    all_reached.set()
                await all_reached.wait()

        reached, feeds, all_reached = list[int](), list[int](), asyncio.Event()
        began = time.monotonic()
        await asyncio.gather(*(one() for _ in range(50)))
        assert (len(reached), feeds) == (50, [1])
        assert len(sampled) <= (time.monotonic() - began) / live.EVERY_S + 2  # one a second, not fifty
        while hub.streams or hub._feeds:  # nobody listens, nothing is sampled
            await asyncio.sleep(0.05)


async def test_a_stream_ends_with_its_token(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOOKED_AT_S", 0.2)
    async with console(app) as client, asyncio.timeout(150):
        made = await access.create(await app.store(), "ann", Role.OPERATOR, actor="admin")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        async with listen(client, "menu") as answer:
            stream = told(answer)
            await regions(stream, "badge:failed")
            await access.revoke(await app.store(), made.record.id, actor="admin")
            assert {"over": True} in [message async for message in stream]


async def test_a_process_that_stops_ends_its_streams(app: App) -> None:
    async with console(app) as client, asyncio.timeout(150), listen(client, "menu") as answer:
        stream = told(answer)
        await regions(stream, "badge:failed")
        client.live.close()  # type: ignore[attr-defined]
        assert {"over": True} not in [message async for message in stream], "nobody was signed out"


async def test_trouble_of_the_store_is_told_and_passes(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.errors import StoreUnavailable

    async with console(app) as client, asyncio.timeout(150), listen(client, "menu") as answer:
        stream = told(answer)
        await regions(stream, "badge:failed")
        store = await app.store()
        whole = store.count_failed

        async def broken(which: Any) -> int:
            raise StoreUnavailable("the database is away")

        monkeypatch.setattr(store, "count_failed", broken)
        away = {"label": "store unreachable", "text": "the database is away"}
        while (await anext(stream))["trouble"] != away:
            pass
        monkeypatch.setattr(store, "count_failed", whole)
        while (await anext(stream))["trouble"] is not None:
            pass


async def test_a_viewer_does_not_hear_where_the_store_is(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    from redrive.errors import StoreUnavailable

    async def broken(which: Any) -> int:
        raise StoreUnavailable("PostgreSQL database 'night' at 10.0.0.7:5432 cannot be used right now")

    async with console(app) as client, asyncio.timeout(150):
        store = await app.store()
        made = await access.create(store, "vic", Role.VIEWER, actor="admin")
        await client.post(f"{HOME}/sign-in", data={"token": made.secret})
        monkeypatch.setattr(store, "count_failed", broken)
        async with listen(client, "menu") as answer:
            trouble = (await anext(told(answer)))["trouble"]["text"]
        assert "cannot be used" in trouble and "10.0.0.7" not in trouble and "night" not in trouble


async def test_an_error_of_ours_is_told_as_one_and_logged_once(
    app: App, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With its id in the log; and what else the page listens to, and is well, does not make it live again."""
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    samples = 0

    async def broken(operator: Operator) -> dict[str, str]:
        nonlocal samples
        samples += 1
        raise KeyError("a bug")

    async def healthy(operator: Operator) -> dict[str, str]:
        return {"changed": str(samples)}

    hub = Live(app, {"broken": lambda _: broken, "healthy": lambda _: healthy})
    admitted = hub.admit(["broken", "healthy"], Role.VIEWER)
    troubles: list[dict[str, str] | None] = []
    async with asyncio.timeout(150):
        async for event in hub.stream(admitted, lambda: asyncio.sleep(0, True)):
            if event.startswith("data: ") and samples > 1:
                troubles.append(json.loads(event[6:])["trouble"])
            if len(troubles) > 3:
                break
    hub.close()
    (logged,) = [record for record in caplog.records if record.name == "redrive.console"]
    text = f"The server failed to make a part of this page; its log says why: error {logged.error_id}."  # type: ignore[attr-defined]
    assert troubles == [{"label": "not live", "text": text}] * 4


async def test_unknown_topics_are_refused(app: App) -> None:
    async with console(app) as client:
        for topics in ("", "nothing", "menu,menu,menu,menu,menu,menu", "history:2h"):
            assert (await client.get(f"{HOME}/live", params={"topics": topics})).status_code == 422
        for topic in ("audit", "failures", "tasks", "letters"):
            answer = await client.get(f"{HOME}/live", params={"topics": f"{topic}:foo%3D1"})
            assert (answer.status_code, "unknown filters: foo" in answer.text) == (422, True)


async def test_an_operation_is_followed(app: App) -> None:
    async with console(app) as client, asyncio.timeout(150):
        await fail_some(app, 3)
        fields = {"all": "1", "kind": "SEND", "reason": "again"}
        begun = await send(client, "/failures/retry", fields, "/failures/preview?kind=SEND")
        operation = begun.headers["location"].rpartition("/")[2]
        await send(client, "/act/control.pause", {"target": "kind", "name": "SEND", "reason": "x"}, "/queues")
        await work(app)
        async with listen(client, f"operation:{operation}") as answer:
            stream = told(answer)
            assert "redrive resume" in await regions(stream, "#progress"), "its tasks wait for a pause"
            await send(client, "/act/control.resume", {"target": "kind", "name": "SEND"}, "/queues")
            app.mended = True  # type: ignore[attr-defined]
            await work(app)
            while "TASK_RETRY_BATCH_SUMMARY" not in (rows := await regions(stream, "#rows")):
                pass
            assert f"{HOME}/audit?auditAction=TASK_RETRY_BATCH_SUMMARY" in rows
        assert "Retry of 3 tasks" in await page(client, f"/operations/{operation}")


async def test_one_page_too_many_is_refused_and_leaves_nothing_behind(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_FEEDS", 1)
    async with console(app) as client:
        hub: Live = client.live  # type: ignore[attr-defined]
        refused = await client.get(f"{HOME}/live", params={"topics": "menu,overview"})
        assert refused.status_code == 503
        assert "too many pages are open" in refused.text
        assert not hub._feeds and not hub.streams


async def test_nobody_takes_live_from_the_others(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has too many pages open keeps the latest ones, also by several sessions of a token."""
    monkeypatch.setattr(live, "MOST_STREAMS_OF_ONE", 3)
    async with console(app) as client, asyncio.timeout(150), contextlib.AsyncExitStack() as stack:
        store, hub = await app.store(), client.live  # type: ignore[attr-defined]
        heard = list[AsyncIterator[dict[str, Any]]]()  # one that is let go of is closed
        for name in ("vic", "ann"):
            made = await access.create(store, name, Role.VIEWER, actor="admin")
            opened = []
            for _ in range(5):
                one = await stack.enter_async_context(another(client))
                await one.post(f"{HOME}/sign-in", data={"token": made.secret})
                opened.append(await stack.enter_async_context(listen(one, "menu")))
            assert [answer.status_code for answer in opened] == [200] * 5
            for answer in opened[:2]:
                assert (await answer.aread()).decode().endswith("event: crowded\ndata: {}\n\n")  # and it ends
            heard += [told(answer) for answer in opened[2:]]
            for stream in heard[-3:]:
                await anext(stream)  # it goes on
        assert hub.streams == 6


async def test_nobody_takes_all_feeds(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_FEEDS_OF_ONE", 4)
    await app.store()
    hub = Live(app, TOPICS)

    def admit(owner: str, *topics: str) -> Admitted:
        return hub.admit(list(topics), Role.VIEWER, None, owner)

    first, second = admit("vic", "menu", "overview"), admit("vic", "menu", "workers")
    other = admit("ann", "menu", "schedules")
    third = admit("vic", "menu", "queues")
    assert not first.crowded_out.is_set() and len(hub._feeds) == 5
    fourth = admit("vic", "menu", "approvals")  # a fifth feed of hers
    assert [one.crowded_out.is_set() for one in (first, second, third, fourth, other)] == [True, *[False] * 4]
    assert hub.streams == 4 and {topic for topic, *_ in hub._feeds} == {
        *("menu", "workers", "queues", "approvals", "schedules")
    }
    for one in (first, second, third, fourth, other):
        hub.leave(one)  # the first one for the second time
    assert not hub.streams and not hub._feeds and not hub._of
    hub.close()
    await app.close()


async def test_a_stream_counts_from_when_it_is_let_in(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 2)
    await app.store()
    hub = Live(app, TOPICS)
    first, _ = hub.admit(["menu"], Role.VIEWER), hub.admit(["menu"], Role.VIEWER)
    with pytest.raises(TooManyStreams):
        hub.admit(["menu"], Role.VIEWER)
    hub.leave(first)
    hub.admit(["menu"], Role.VIEWER)
    hub.close()
    await app.close()


async def test_pages_with_forms_hear_that_they_have_changed(app: App) -> None:
    app.periodic("SEND", cron="0 3 * * *", payload={"to": "x"}, name="nightly")
    await fail_some(app, 1)  # a worker has been there: it declares the schedule
    async with console(app) as client, asyncio.timeout(150):
        for topic, path, form in (
            ("queues", "/act/control.pause", {"target": "queue", "name": "default"}),
            ("queues", "/queues/limit", {"name": "SEND", "concurrency": "3"}),
            ("schedules", "/act/schedules.pause", {"name": "nightly"}),
        ):
            async with listen(client, topic) as answer:
                stream = told(answer)
                before = await regions(stream, "changed")
                assert (await send(client, path, form, f"/{topic}")).status_code == 303
                assert await regions(stream, "changed") != before


async def test_charts_are_drawn_again(app: App) -> None:
    async with console(app) as client, asyncio.timeout(150), listen(client, "history:1h") as answer:
        stream = told(answer)
        counted = re.compile(r"<td>[1-3]\b")  # they may fall into two minutes
        assert not counted.search(await regions(stream, "#charts"))
        await fail_some(app, 3)
        while not counted.search(await regions(stream, "#charts")):
            pass


@pytest.mark.parametrize(("every", "taken"), [(1000.0, 1), (0.0, 3)])
async def test_what_changes_slowly_is_sampled_seldom(app: App, every: float, taken: int) -> None:
    samples = 0

    async def sample(_: Operator) -> dict[str, str]:
        nonlocal samples
        samples += 1
        return {"#it": str(samples)}

    again = seldom(sample, every)
    operator = await app.operator(Caller("ann", Role.VIEWER))
    last = [await again(operator) for _ in range(3)][-1]
    assert samples == taken
    assert last == {"#it": str(taken)}
    await app.close()


async def test_each_topic_is_told_without_a_persons_form(app: App) -> None:
    """What is pushed is made once for all of a role: no page, and so no form token of anybody, is at hand there."""
    worker = app.worker(await app.store(), Options())
    async with console(app) as client, asyncio.timeout(150), worker:
        await fail_some(app, 1)
        for topic in sorted(TOPICS.keys() - {"operation", "task", "cause", "history"}):
            async with listen(client, topic) as answer:
                message = await anext(aiter(told(answer)))
                assert message["trouble"] is None and "csrf" not in json.dumps(message), topic


async def test_a_worker_is_drained_from_its_page(app: App) -> None:
    store = await app.store()
    worker = app.worker(store, Options())
    async with console(app) as client, asyncio.timeout(150), worker:
        while 'action="/ops/queue/act/workers.drain"' not in (html := await page(client, "/workers")):
            await asyncio.sleep(0.2)
        await store.note_build(worker.id, "7f3c")
        assert "7f3c" in text_of(await page(client, "/workers")), "its build is told"
        [name] = re.findall(r'<option value="([^"]*)">', html)
        assert f"{name} is the only worker of queue default (0 waiting)" in text_of(html)
        answer = await send(client, "/act/workers.drain", {"worker": name, "reason": "a new version"}, "/workers")
        assert answer.status_code == 303
        assert "draining since" in text_of(await page(client, "/workers"))


def test_a_slow_sample_is_taken_less_often_but_one_by_chance_is_forgiven() -> None:
    assert live._pause(took=0.2, before=0.2) == 0.8
    assert live._pause(took=3.0, before=2.0) == 8.0, "a fifth of the time"
    assert live._pause(took=4.0, before=0.1) == 0.4, "this one took long, and not those before it"
    assert live._pause(took=4.0, before=0.0) == 0, "the first one"
