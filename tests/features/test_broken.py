"""A feature that cannot write what it adds stops no worker: its task stays until it is mended."""

from __future__ import annotations

import asyncio
import io
import json

import pytest

from redrive import App, Context
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.payload import encode
from redrive.kernel.task import NewTask, State
from redrive.observe.logs import TaskLog
from redrive.settings import Options, Settings
from redrive.testing.conformance.probe import BROKEN, PROBE

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_worker_goes_on(store: str, request: pytest.FixtureRequest) -> None:
    url = (
        f"sqlite:///{request.getfixturevalue('tmp_path')}/broken.db"
        if store == "sqlite"
        else request.getfixturevalue("postgres_url")
    )
    app = App(url, features=[PROBE], settings=Settings(lease_ms=600_000))
    await app.migrate()

    @app.task("GOOD")
    async def good(ctx: Context) -> None: ...

    @app.task("BAD")
    async def bad(ctx: Context) -> None: ...

    opened = await app.store()
    stream = io.StringIO()
    ids = [new_id() for _ in BROKEN]
    await opened.apply(
        Commit(
            enqueues=[
                NewTask(id, "BAD", "default", None, feature="probe", facts=encode({"broken": broken}, "facts"))
                for id, broken in zip(ids, BROKEN, strict=True)
            ]
        )
    )
    worker = app.worker(opened, Options(concurrency=20), log=TaskLog(stream, "json"))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        others = [task.id for task in await app.enqueue_many([("GOOD", None)] * 20)]
        while {task.state for task in (await opened.get_many(others)).values()} != {State.COMPLETED}:
            assert not running.done()
            await asyncio.sleep(0.05)
        # Two tries of each were refused: how it ended, and that it failed.
        while worker.health.lost < len(ids):
            assert not running.done()
            await asyncio.sleep(0.05)
    worker.stop()
    await running
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    told = [line for line in lines if line["event"] == "task.not_settled"]
    assert {line["task_id"] for line in told} == set(map(str, ids)) and "probe" in told[0]["message"]
    found = await opened.get_many(ids)
    assert {task.state for task in found.values()} == {State.RUNNING}
    await app.close()
