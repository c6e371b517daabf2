"""The file of the full text: documents hold what payloads hold, so it is for its owner only."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from redrive.ids import new_id
from redrive.outbox.event import Event, Op
from redrive.outbox.relay import PRUNE_EVERY_S, PRUNED_AT_ONCE, SinkPruner
from redrive.outbox.sinks.fts5 import Fts5
from redrive.outbox.verdict import Superseded
from tests.outbox.conftest import make_app

pytestmark = pytest.mark.anyio


async def test_others_on_the_machine_cannot_read_it(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    sink = Fts5(path)
    await sink.write([change("a", Op.UPSERT, 1)])  # who only looks makes no file
    assert await sink.search("nothing", 10) == []
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    await sink.close()
    assert modes["search.db"] == 0o600 and set(modes.values()) == {0o600}


DAY = 86_400


def change(key: str, op: Op, version: int) -> Event:
    return Event(new_id(), "note", key, op, version, {"title": key} if op is Op.UPSERT else None)


async def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """A connection that stays open would write to a file that nobody else sees, and find all there."""
    path = tmp_path / "search.db"
    sink = Fts5(path)
    await sink.write([change("a", Op.UPSERT, 1)])
    for one in tmp_path.iterdir():
        one.unlink()
    assert [one.key async for one in sink.scan()] == []
    await sink.write([change("b", Op.UPSERT, 1)])
    other = Fts5(path)
    assert [one.key async for one in other.scan()] == ["note:b"]
    await sink.close()
    await other.close()


async def test_a_file_that_was_replaced_is_opened_anew(tmp_path: Path) -> None:
    """As one that is put back from a backup."""
    path, kept = tmp_path / "search.db", tmp_path / "kept.db"
    sink = Fts5(path)
    await sink.write([change("a", Op.UPSERT, 1)])
    with sqlite3.connect(path) as file, sqlite3.connect(kept) as copy:
        file.backup(copy)
    file.close()
    copy.close()
    await sink.write([change("b", Op.UPSERT, 1)])
    for one in ("search.db-wal", "search.db-shm"):
        (tmp_path / one).unlink()
    kept.replace(path)
    assert [one.key async for one in sink.scan()] == ["note:a"]
    await sink.write([change("c", Op.UPSERT, 1)])
    await sink.close()
    with sqlite3.connect(path) as file:
        keys = file.execute("select key from documents_live_docs order by key").fetchall()
    file.close()
    assert keys == [("note:a",), ("note:c",)]


async def test_deletions_are_forgotten_after_a_time_and_nothing_else(tmp_path: Path) -> None:
    sink = Fts5(tmp_path / "search.db")
    assert await sink.prune(0, 10) == 0 and not (tmp_path / "search.db").exists()
    await sink.write([change(key, Op.UPSERT, 1) for key in ("a", "b", "c", "d")])
    await sink.write([change(key, Op.DELETE, 2) for key in ("a", "b", "never there")])
    await sink.write([change("b", Op.UPSERT, 3)])  # there again
    with sqlite3.connect(tmp_path / "search.db") as file:
        rows = "select key from documents_live_docs where deleted_at is not null order by key"
        assert file.execute(rows).fetchall() == [("note:a",), ("note:never there",)]
        file.execute("update documents_live_docs set deleted_at = deleted_at - 10 * 86400 where key = 'note:a'")
    file.close()
    assert await sink.prune(11 * DAY, 10) == 0
    assert await sink.prune(9 * DAY, 10) == 1
    assert {one.key async for one in sink.scan()} == {"note:b", "note:c", "note:d"}
    assert await sink.write([change("never there", Op.UPSERT, 1)]) == [Superseded()]
    await sink.close()


class Counted:
    """A sink that has so many old deletions."""

    def __init__(self, left: int) -> None:
        self.left, self.asked = left, 0

    async def prune(self, seconds: float, limit: int) -> int:
        self.asked += 1
        if self.left < 0:
            raise ConnectionError
        piece = min(self.left, limit)
        self.left -= piece
        return piece


async def test_whoever_writes_prunes_now_and_then_in_pieces() -> None:
    now, sink = 1_000.0, Counted(2 * PRUNED_AT_ONCE + 5)
    pruner = SinkPruner("notes", 90, lambda: now)
    for _ in range(5):
        await pruner.before_request(sink)  # type: ignore[arg-type]
    assert (sink.left, sink.asked) == (0, 3)
    now += PRUNE_EVERY_S
    sink.left = -1
    for _ in range(2):
        await pruner.before_request(sink)  # type: ignore[arg-type]
    assert sink.asked == 4, "what went wrong is tried again later"


async def test_a_worker_prunes_the_sink_that_it_writes_to(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/redrive.db", tombstone_days=1)
    app.outbox.projection("notes", sink=f"fts5:///{tmp_path}/search.db")
    await app.migrate()
    sink = Fts5(tmp_path / "search.db")
    await sink.write([change("old", Op.DELETE, 2)])
    with sqlite3.connect(tmp_path / "search.db") as file:
        file.execute("update documents_live_docs set deleted_at = 1")
    file.close()
    await app.outbox.publish(None, "notes", "note", "new", "upsert", 1, {})
    await app.worker(stop_when_empty=True).run()
    with sqlite3.connect(tmp_path / "search.db") as file:
        assert file.execute("select key from documents_live_docs").fetchall() == [("note:new",)]
    file.close()
    await sink.close()
    await app.close()
