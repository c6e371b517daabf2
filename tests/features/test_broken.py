"""A feature that cannot write what it adds stops no worker: its task stays until it is mended."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from redrive import App, Context
from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.payload import encode
from redrive.kernel.ports.store import ClaimRequest
from redrive.kernel.task import NewTask, State
from redrive.observe.logs import TaskLog
from redrive.ops import doctor
from redrive.settings import Options, Settings
from redrive_kit.conformance.probe import BROKEN, PROBE


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path')}/broken.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


async def test_recovery_reaches_what_is_behind_it_and_says_why(url: str) -> None:
    """More leases than are looked at together, whose end a feature refuses; behind them one that it lets end, and one
    that has nothing to do with it. Who is told: the log, once, and doctor."""
    app = App(url, features=[PROBE], settings=Settings(lease_ms=600_000, recovery_batch_size=3))
    await app.migrate()
    store = await app.store()
    bad = encode({"raise on": "queued"}, "facts")
    ids = [new_id() for _ in range(8)]
    poison = [NewTask(id, "BAD", "default", None, max_attempts=3, feature="probe", facts=bad) for id in ids]
    await store.apply(Commit(enqueues=poison))
    await store.cycle(Commit(), ClaimRequest("dead", ("default",), 8, 0.0))
    behind = [NewTask(new_id(), "GOOD", "default", None, max_attempts=3, feature=name) for name in (None, "probe")]
    await store.apply(Commit(enqueues=behind))
    await store.cycle(Commit(), ClaimRequest("dead", ("default",), 2, 0.0))
    stream = io.StringIO()
    worker = app.worker(store, Options(queues=("nothing",)), log=TaskLog(stream, "json"))
    recovering = [duty for name, duty in worker.duties.items() if name in ("recover", "recover:probe")]
    for recover in recovering * 2:
        await recover.run(store, "w", lambda: False)
    assert {task.state for task in (await store.get_many([one.id for one in behind])).values()} == {State.QUEUED}
    told = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "task.not_recovered"]
    assert sorted(line["task_id"] for line in told) == sorted(map(str, ids))
    assert "the feature 'probe' failed to react" in told[0]["message"]
    diagnosis = await store.diagnose()
    assert diagnosis.expired == 8 and diagnosis.stuck["probe"][0] == 8
    later = replace(diagnosis, now=diagnosis.now + timedelta(minutes=5))
    (finding,) = doctor._leases(later)
    assert finding.code == "feature_stuck" and "8 tasks of feature probe are not recovered" in finding.text
    await app.close()


async def test_a_worker_goes_on(url: str) -> None:
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
