"""Deletes are remembered for sinks that forget them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.kernel.commit import Commit
from redrive.kernel.erase import digest_of
from redrive.kernel.reactions import Rows
from redrive.outbox.settings import OutboxSettings, retention
from tests.outbox.conftest import BOTH_STORES, World, make_app
from tests.outbox.faulty import Faulty
from tests.outbox.forgetful import ForgetfulFts5

pytestmark = [pytest.mark.anyio, BOTH_STORES]


@pytest.fixture
async def world(url: str, tmp_path: Path) -> AsyncIterator[World]:
    app = make_app(url)
    fts = ForgetfulFts5(tmp_path / "search.db")
    sink = Faulty(fts)
    app.outbox.projection("notes", sink=sink)
    await app.migrate()
    yield World(app, fts, sink)
    await app.close()
    await fts.close()


async def test_a_late_update_does_not_bring_a_deleted_document_back(world: World) -> None:
    await world.publish(1, "upsert", 1, {"v": 1})
    await world.publish(2, "upsert", 1, {"v": 1})
    await world.drain()
    await world.publish(1, "delete", 3)
    await world.drain()
    await world.publish(1, "upsert", 2, {"v": 2})
    await world.publish(2, "upsert", 2, {"v": 2})
    await world.drain()
    assert await world.versions() == {"note:2": 2}
    assert [event.key for event in world.sink.requests[-1]] == ["note:2"], "the sink is not even asked"
    [late] = [task for task in await world.tasks() if task.result == {"op": "upsert", "version": 2, "superseded": True}]
    assert late.scope == "note:1"
    await world.publish(1, "upsert", 4, {"v": 4})
    await world.drain()
    assert await world.versions() == {"note:1": 4, "note:2": 2}


async def test_it_is_noted_before_the_sink_is_told(world: World) -> None:
    """A delete whose answer is lost, and an older update that comes in between."""
    await world.publish(1, "delete", 3)
    world.sink.faults = [ConnectionError("cut")]
    await world.app.worker(max_jobs=1).run()
    store = await world.app.store()
    [row] = await store.sql.feature_rows("outbox", "buried", "notes", f'["{digest_of("note:1")}"]')
    assert row["version"] == 3
    await world.publish(1, "upsert", 2, {"v": 2})
    await world.drain()
    assert await world.versions() == {}


async def test_the_newest_stays_and_old_ones_go(world: World) -> None:
    store, keys = await world.app.store(), f'["{digest_of("note:1")}"]'
    for version in (5, 3):
        row = {"projection": "notes", "key": digest_of("note:1"), "version": version}
        await store.apply(Commit(rows=[Rows("outbox", "bury", (row,))]))
    [found] = await store.sql.feature_rows("outbox", "buried", "notes", keys)
    assert found["version"] == 5
    assert await store.sql.feature_rows("outbox", "buried", "others", keys) == []
    days = OutboxSettings().tombstone_days
    assert retention(world.app.settings) == {"prune_tombstones": days, "prune_lives": days + 7}
