"""What an application does with batches in Python, and its tests on the kit's clock."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

from redrive import App, Fail
from redrive.batches import BatchState, ItemState
from redrive.testing import using
from tests.batches_remote.conftest import (
    Scripted,
    command,
    made,
    make_app,
    make_due,
    money,
    open_circuit,
    opened,
    rich,
    work,
)
from tests.batches_remote.test_faces import client_of
from tests.console.conftest import console, page


async def test_an_items_time_is_over_on_the_kits_clock() -> None:
    app, provider = make_app("sqlite:///:memory:", poll_later=30.0, poll_first=5.0), Scripted()
    app.provider("video", provider)
    async with using(app) as kit:
        await rich(app)
        batch = await made(app, [{"polls": 10_000}])
        provider.hold = True  # every look fails: they are not counted
        await kit.drain()
        kit.advance(86_000)
        await kit.drain()
        assert [one.state async for one in app.remote_batches.items(batch.id)] == [ItemState.PROCESSING]
        kit.advance(4_000)
        await kit.drain()
        found = await app.remote_batches.get(batch.id)
        [item] = [one async for one in app.remote_batches.items(batch.id)]
        assert (found.state, item.error_code, item.unknown) == (BatchState.FAILED, "BATCH_MAX_ITEM_SECONDS", True)
        assert await money(app) == (1000, 0, 0)


async def test_items_behind_an_open_circuit_end_on_the_kits_clock() -> None:
    app, provider = make_app("sqlite:///:memory:", last_look_seconds=900.0), Scripted()
    app.provider("video", provider)
    async with using(app) as kit:
        await rich(app)
        provider.hold = True
        batch = await made(app, [{}])
        await kit.drain()
        kit.advance(90_000)
        await open_circuit(app)
        await kit.drain()
        [item] = [one async for one in app.remote_batches.items(batch.id)]
        assert (item.state, item.error_code, item.unknown) == (ItemState.FAILED, "BATCH_MAX_ITEM_SECONDS", True)
        assert (await app.remote_batches.get(batch.id)).state is BatchState.PROCESSING, "it waits for a last look"
        kit.advance(901)
        await kit.drain()
        assert (await app.remote_batches.get(batch.id)).state is BatchState.FAILED
        assert await money(app) == (1000, 0, 0) and not provider.calls


async def test_a_batch_that_was_left_open_ends_on_the_kits_clock() -> None:
    app = App("sqlite:///:memory:", settings=make_app("sqlite:///:memory:").settings)

    @app.task("SEND")
    async def send(ctx: Any) -> None: ...

    async with using(app) as kit:
        left = app.batch()
        await left.__aenter__()
        await left.add(("SEND", {}))
        kit.advance(25 * 3600)
        await kit.drain()
        assert (await app.batch.get(left.id)).state is BatchState.CANCELLED


async def test_batches_of_both_sorts_are_cancelled_and_retried() -> None:
    app, provider = App("sqlite:///:memory:", settings=make_app("sqlite:///:memory:").settings), Scripted()
    app.provider("video", provider)
    broken = [True]

    @app.task("SEND", max_attempts=1)
    async def send(ctx: Any, n: int = 0) -> None:
        if broken[0]:
            raise Fail("NOT_NOW")

    async with using(app) as kit:
        await rich(app)
        tasks = await app.batch([("SEND", {"n": n}) for n in range(3)])
        jobs = await made(app, [{"fail": "no", "once": True}, {}])
        await kit.drain()
        assert [(await app.batch.get(one.id)).state for one in (tasks, jobs)] == ["failed", "completed"]
        broken[0] = False
        assert (await app.batch.retry_failed(jobs.id, "the model is back")).remote.round == 2
        await app.batch.retry_failed(tasks.id, "fixed")
        await kit.drain()
        assert [one.state async for one in app.batch.items(jobs.id)] == [ItemState.COMPLETED] * 2
        waiting = await app.batch([("SEND", {"n": n}) for n in range(3)])
        assert (await app.batch.cancel(waiting.id, "not wanted")).state is BatchState.CANCELLED
        assert (await app.batch.cancel((await made(app, [{}])).id)).state is BatchState.CANCELLED


async def test_every_face_has_one_spelling_of_states(tmp_path: Path) -> None:
    """Of batches of both sorts and of their items: Python, HTTP, the command line, CSV, the console, and as filters."""
    app, provider = make_app(f"sqlite:///{tmp_path}/x.db", poll_next=3600.0), Scripted()
    app.provider("video", provider)

    @app.task("SEND", max_attempts=1)
    async def send(ctx: Any, n: int = 0) -> None:
        if n == 1:
            raise Fail("NOT_NOW")

    async with opened(app):
        tasks = await app.batch([("SEND", {"n": 0}), ("SEND", {"n": 1})])
        jobs = await made(app, [{}, {"fail": "no"}, {"polls": 10_000}])
        provider.hold = True
        await work(app, jobs)
        provider.hold = False
        await make_due(app)  # of three jobs two end, and one runs
        await asyncio.wait_for(work(app, jobs), 60)
        async with app.batch() as waiting:
            await waiting.add([("SEND", {}), {"kind": "SEND", "payload": {}, "delay": 3600.0}])
        ids = [str(one.id) for one in (tasks, jobs, waiting)]
        wanted = {
            ids[0]: ("failed", ["completed", "failed"]),
            ids[1]: ("processing", ["completed", "failed", "processing"]),
            ids[2]: ("processing", ["pending", "pending"]),
        }
        assert {one: await in_python(app, one) for one in ids} == wanted
        assert (await app.remote_batches.get(jobs.id)).state == "processing"
        assert sorted([one.state async for one in app.remote_batches.items(jobs.id)]) == wanted[ids[1]][1]
        async with client_of(app) as client:
            assert {one: await over_http(client, one) for one in ids} == wanted
            for one, (_, states) in wanted.items():
                for state in ItemState:  # as a filter, each takes what it is called by all
                    found = (await client.get(f"/api/batches/{one}/items?state={state}")).json()["items"]
                    assert [item["state"] for item in found] == [state] * states.count(state)
        assert {one: bycommand(app, one) for one in ids[:2]} == {one: wanted[one] for one in ids[:2]}
        async with console(app) as client:
            for one, (_, states) in wanted.items():
                offered = re.findall(r"<option[^>]*>([a-z]+)", await page(client, f"/batches/{one}"))
                assert set(ItemState) <= set(offered) and not {"queued", "delayed", "running"} & set(offered)
                for state in set(states):
                    shown = await page(client, f"/batches/{one}?state={state}")
                    rows = shown[shown.index('aria-label="Items"') :]
                    assert rows.count(f">{state}<") == states.count(state), (one, state)


async def in_python(app: App, batch: str) -> tuple[str, list[str]]:
    items = [one async for one in app.batch.items(batch)]
    return str((await app.batch.get(batch)).state), sorted(str(one.state) for one in items)


async def over_http(client: Any, batch: str) -> tuple[str, list[str]]:
    items = (await client.get(f"/api/batches/{batch}/items")).json()["items"]
    return (await client.get(f"/api/batches/{batch}")).json()["state"], sorted(one["state"] for one in items)


def bycommand(app: App, batch: str) -> tuple[str, list[str]]:
    place = (batch, "--url", app.settings.url)
    shown, lines = (command("batch", *what, *place, more) for *what, more in (("show", "--json"), ("items", "--csv")))
    rows = csv.DictReader(io.StringIO(lines.lstrip("\ufeff")))
    return json.loads(shown)["state"], sorted(row["state"] for row in rows)
