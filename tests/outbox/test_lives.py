"""A key that was deleted, and is created again with a version that it had before, begins a new life: by every way to
publish, in sinks that remember deletes and in those that forget them, whatever arrives when."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.outbox.relay.lives import lives_of
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.source import Record
from tests.outbox.conftest import World, make_app
from tests.outbox.faulty import Faulty
from tests.outbox.forgetful import ForgetfulFts5

pytestmark = pytest.mark.anyio


class Rows:
    """A source in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, Record] = {}

    async def scan(self, after: str, limit: int) -> Sequence[Record]:
        return [self.rows[key] for key in sorted(self.rows) if key > after][:limit]

    async def fetch(self, keys: Sequence[str]) -> Sequence[Record]:
        return [self.rows[key] for key in keys if key in self.rows]


@pytest.fixture(params=[Fts5, ForgetfulFts5])
async def world(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> AsyncIterator[World]:
    app = make_app(url)
    fts = request.param(tmp_path / "search.db")
    app.outbox.projection("notes", sink=Faulty(fts))
    await app.migrate()
    yield World(app, fts, Faulty(fts))
    await app.close()
    await fts.close()


async def publish(world: World, *events: tuple[str, int]) -> None:
    for op, version in events:
        await world.publish(1, op, version, None if op == "delete" else {"title": f"{op} {version}"})


def run(url: str, *statements: str) -> None:
    if url.startswith("postgres"):
        with psycopg.connect(url) as connection:
            for statement in statements:
                connection.execute(statement.encode())
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


async def test_what_is_created_after_a_delete_is_newer(world: World) -> None:
    await publish(world, ("create", 1), ("update", 2), ("delete", 3))
    await world.drain()
    await publish(world, ("create", 1))
    await world.drain()
    assert await world.versions() == {"note:1": 1}
    await publish(world, ("update", 2), ("delete", 3), ("create", 1), ("update", 2))
    await world.drain()
    assert await world.versions() == {"note:1": 2} and await world.fts.get("note:1") == {"title": "update 2"}
    await publish(world, ("delete", 3))
    await publish(world, ("update", 2))
    await world.drain()
    assert await world.versions() == {}, "a late update creates nothing"
    await publish(world, ("upsert", 4))
    await world.drain()
    assert await world.versions() == {"note:1": 4}, "a newer version does, whatever it is called"


async def test_events_of_two_lives_arrive_in_any_order(world: World, url: str) -> None:
    """The newest life is projected first: what was published before comes late, and changes nothing."""
    await publish(world, ("create", 5))
    await world.drain()
    await publish(world, ("update", 6), ("delete", 7), ("create", 1), ("update", 2))
    task = "redrive.task" if url.startswith("postgres") else "redrive_task"
    old = "payload ->> 'version' not in ('1', '2')" if url.startswith("postgres") else "payload ->> 'version' > 2"
    live = "state = 'queued'"
    run(url, f"update {task} set priority = case when {old} then 9 else 1 end where {live}")
    await world.app.worker(concurrency=1, max_jobs=2).run()
    assert await world.versions() == {"note:1": 2}
    await world.drain()
    assert await world.versions() == {"note:1": 2} and await world.fts.get("note:1") == {"title": "update 2"}


async def test_where_nobody_says_create_the_source_knows(url: str, tmp_path: Path) -> None:
    """An upsert with a version from before the delete is late, or its entity is there again."""
    app, fts, rows = make_app(url), ForgetfulFts5(tmp_path / "search.db"), Rows()
    app.outbox.projection("notes", sink=fts, source=rows)
    await app.migrate()
    world = World(app, fts, Faulty(fts))
    await publish(world, ("upsert", 1), ("upsert", 2), ("delete", 3))
    await world.drain()
    await publish(world, ("upsert", 2))
    await world.drain()
    assert await world.versions() == {}, "it was late"
    rows.rows["note:1"] = Record("note", "1", 2, {"title": "as it is now"})
    await publish(world, ("upsert", 1), ("upsert", 2))
    await world.drain()
    assert await world.versions() == {"note:1": 2} and await fts.get("note:1") == {"title": "as it is now"}
    await publish(world, ("upsert", 3))
    await world.drain()
    assert await world.versions() == {"note:1": 3}
    await app.close()
    await fts.close()


async def test_raw_sql_publishes_lives_too(world: World, url: str) -> None:
    def sql(op: str, version: int) -> str:
        values = f"'notes', 'note', '1', '{op}', {version}, '{{\"v\": {version}}}'"
        if url.startswith("postgres"):
            return f"select redrive.publish({values})"
        columns = "projection, entity_type, entity_id, op, version, payload"
        return f"insert into redrive_outbox_publish ({columns}) values ({values})"

    run(url, *(sql(*event) for event in (("create", 1), ("upsert", 2), ("delete", 3))))
    await world.drain()
    run(url, sql("create", 1))
    await world.drain()
    assert await world.versions() == {"note:1": 1}
    if url.startswith("postgres"):
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        rows = connection.execute("select op, event_version from search_outbox_events order by created_at").fetchall()
    assert sorted(rows) == [("create", 1), ("create", 1), ("delete", 3), ("upsert", 2)], (
        "versions are as they were given"
    )


async def test_lives_are_forgotten_and_erased(world: World, url: str) -> None:
    await publish(world, ("create", 1), ("delete", 2), ("create", 1))
    await world.drain()
    store = await world.app.store()
    found: Any = await lives_of(store, "notes", ["note:1"])
    assert (found["note:1"].base, found["note:1"].deleted) == (3, None)
    assert (await store.feature_rows("outbox", "personal", '{"scope": "note:1"}'))[0]["n"] == 1
