"""A key that was deleted, and is created again with a version that it had before, begins a new life: by every way to
publish, in sinks that remember deletes and in those that forget them, whatever arrives when."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from redrive.outbox.compare import count_of_differences
from redrive.outbox.lives import lives_of
from redrive.outbox.sink import Stored
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.source import Record
from tests.outbox.conftest import BOTH_STORES, World, erase_scope, make_app
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


@pytest.fixture
async def world(url: str, tmp_path: Path) -> AsyncIterator[World]:
    """With a sink that remembers deletes on one store, and one that forgets them on the other."""
    app = make_app(url)
    fts = (Fts5 if url.startswith("sqlite") else ForgetfulFts5)(tmp_path / "search.db")
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


@BOTH_STORES
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


@BOTH_STORES
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


@BOTH_STORES
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


async def erase(world: World, url: str) -> None:
    """Erases the scope of the note, and checks that nothing of it stays with its lives."""
    await erase_scope(world.app, "note:1")
    assert not any("note:1" in str(row) for row in rows_of(url))


def rows_of(url: str) -> list[tuple[Any, ...]]:
    if url.startswith("postgres"):
        with psycopg.connect(url) as connection:
            return connection.execute("select * from redrive.outbox_life").fetchall()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as connection:
        return connection.execute("select * from redrive_outbox_life").fetchall()


@BOTH_STORES
async def test_a_life_goes_on_after_its_key_was_erased(world: World, url: str) -> None:
    """Nothing of the key stays in the store, and what is published later is newer than what the index has."""
    await publish(world, ("create", 1), ("delete", 9), ("create", 1), ("update", 2))
    await world.drain()
    await erase(world, url)
    await publish(world, ("update", 3))
    await world.drain()
    assert await world.versions() == {"note:1": 3}
    await publish(world, ("delete", 4), ("create", 1))
    await world.drain()
    assert await world.versions() == {"note:1": 1}
    await erase(world, url)
    await publish(world, ("update", 2))
    await world.drain()
    assert await world.versions() == {"note:1": 2}
    await publish(world, ("delete", 3))
    await world.drain()
    assert await world.versions() == {}
    await erase(world, url)
    await publish(world, ("create", 1), ("update", 2))
    await world.drain()
    assert await world.versions() == {"note:1": 2}, "it was deleted when it was erased, and is there again"
    store = await world.app.store()
    found = (await lives_of(store, "notes", ["note:1"]))["note:1"]
    assert (found.start, found.deleted) == (10 + 5 + 4, None)
    [stored] = [one async for one in world.fts.scan()]
    assert stored.base == found.start


@BOTH_STORES
async def test_what_comes_late_after_an_erasure_brings_nothing_back(url: str, tmp_path: Path) -> None:
    """The source knows whether an entity that was deleted and erased is there again."""
    app, fts, rows = make_app(url), Fts5(tmp_path / "search.db"), Rows()
    app.outbox.projection("notes", sink=fts, source=rows)
    await app.migrate()
    world = World(app, fts, Faulty(fts))
    await publish(world, ("create", 1), ("update", 2), ("delete", 3))
    await world.drain()
    await erase(world, url)
    await publish(world, ("update", 2))
    await world.drain()
    assert await world.versions() == {}, "it was late"
    rows.rows["note:1"] = Record("note", "1", 2, {"title": "there again"})
    await publish(world, ("create", 1), ("update", 2))
    await world.drain()
    assert await world.versions() == {"note:1": 2}
    await app.close()
    await fts.close()


class Versions(Fts5):
    """A sink that does not say in which life its documents are."""

    async def scan(self, index: str | None = None, after: str = "") -> AsyncIterator[Stored]:
        async for one in super().scan(index, after):
            yield Stored(one.key, one.version)

    async def find(self, keys: Sequence[str], index: str | None = None) -> Sequence[Stored]:
        return [Stored(one.key, one.version) for one in await super().find(keys, index)]


async def test_a_sink_that_keeps_no_lives_is_compared_by_versions(url: str, tmp_path: Path) -> None:
    app, fts, rows = make_app(url), Versions(tmp_path / "search.db"), Rows()
    app.outbox.projection("notes", sink=fts, source=rows)
    await app.migrate()
    world = World(app, fts, Faulty(fts))
    await publish(world, ("create", 1), ("delete", 2), ("create", 1))
    await world.drain()
    rows.rows["note:1"] = Record("note", "1", 1, {"title": "create 1"})
    assert (await verify(world))["repaired"] == 0
    rows.rows["note:1"] = Record("note", "1", 2, {"title": "no event of it came"})
    assert (await verify(world))["stale_keys"] == ["note:1"] and await world.versions() == {"note:1": 2}
    del rows.rows["note:1"]
    assert (await verify(world))["extra_keys"] == ["note:1"] and await world.versions() == {}
    await app.close()
    await fts.close()


async def verify(world: World) -> dict[str, Any]:
    """Compares the index with its source, and repairs it; returns what was found."""
    begun = await world.app.outbox.verify("notes", repair=True, reason="look")
    over = asyncio.create_task(world.app.outbox.ended(begun, seconds=120))
    while not over.done():
        await world.app.worker(stop_when_empty=True).run()
        await asyncio.sleep(0)
    found = (await over).work
    assert found is not None and not count_of_differences(dict(found.result))
    return dict(found.result)
