"""Real workers and executors beside rows that came past all checks, and a claim that does not come back."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import Any

import psycopg
import pytest

from redrive import App, State
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import Query
from redrive.ops import executor
from redrive.settings import Options
from redrive.worker import readiness as health
from tests.conformance.test_bad_rows import CHECKED, POSTGRES, SQLITE, UNCHECKED
from tests.worker.conftest import working


def spoil(url: str, changes: dict[str, str], ids: list[Any]) -> None:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=10)) as connection, connection:
            connection.execute("pragma ignore_check_constraints = on")
            for task_id, change in zip(ids, changes.values(), strict=True):
                connection.execute(f"update redrive_task set {change} where id = '{task_id}'")
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(UNCHECKED)
        for task_id, change in zip(ids, changes.values(), strict=True):
            connection.execute(f"update redrive.task set {change} where id = '{task_id}'")
        connection.execute(CHECKED)


async def test_a_worker_goes_on_whatever_is_in_the_rows(app: App, url: str) -> None:
    """All of them at once, each between two good ones: the good ones complete, and the worker ends as it should."""
    done: list[int] = []

    @app.task("GOOD")
    async def good(ctx: Any, n: int) -> None:
        done.append(n)

    changes = SQLITE if url.startswith("sqlite") else POSTGRES
    bad = []
    for n in range(len(changes)):
        await app.enqueue("GOOD", {"n": 2 * n})
        bad.append((await app.enqueue("GOOD", {"n": -1}, max_attempts=3)).id)
        await app.enqueue("GOOD", {"n": 2 * n + 1})
    spoil(url, changes, bad)
    store = await app.store()
    worker = app.worker(store, Options(concurrency=4, sleep=0.1, stop_when_empty=True))
    await asyncio.wait_for(worker.run(), 60)
    assert sorted(n for n in done if n >= 0) == list(range(2 * len(changes)))
    found = await store.find(Query(limit=200))
    assert {task.state for task in found} <= {State.COMPLETED, State.FAILED}
    assert any(task.error_code == "TASK_ROW_INVALID" for task in found)


async def test_executors_get_the_others(app: App, url: str) -> None:
    """A payload that cannot be handed out fails by itself; before, the call failed with all of its tasks leased."""
    ids = [(await app.enqueue("X", {"n": n})).id for n in range(3)]
    name = "a payload 300 levels deep"
    spoil(url, {name: (SQLITE if url.startswith("sqlite") else POSTGRES)[name]}, ids[1:2])
    store = await app.store()
    claimed = await executor.claim(store, "farm", ("default",), 10, 60.0)
    assert [task.id for task in claimed] == [ids[0], ids[2]]
    bad = await get_task(store, ids[1])
    assert bad is not None and bad.state is State.FAILED and bad.error_code == "TASK_PAYLOAD_INVALID"


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_readiness_notices_a_claim_that_does_not_come_back(
    app: App, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWERED_WITHIN_S", 0.3)
    with psycopg.connect(url) as owner:
        async with working(app, sleep=0.05) as worker:
            while (await health.readiness(app, worker))["reasons"]:
                await asyncio.sleep(0.02)
            owner.execute("lock table redrive.move_lock in exclusive mode")
            while not (reasons := (await health.readiness(app, worker))["reasons"]):
                await asyncio.sleep(0.05)
            assert "without an answer" in reasons[0]
            owner.rollback()
            while (await health.readiness(app, worker))["reasons"]:
                await asyncio.sleep(0.02)
