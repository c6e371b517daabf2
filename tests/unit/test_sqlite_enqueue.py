"""Enqueueing on a caller's connection: what is refused leaves nothing in the transaction, which goes on."""

from __future__ import annotations

import sqlite3
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.task import NewTask
from redrive.stores.sqlite.session import micros
from redrive.stores.sqlite.store import SqliteStore, enqueue_on


def task(key: str, run_at: datetime | None = None) -> NewTask:
    return NewTask(new_id(), "K", "default", None, run_at=run_at, idempotency_key=key)


@pytest.mark.parametrize("bad", [task("b", datetime(2999, 1, 1, tzinfo=UTC)), task("schedule:b")], ids=["time", "key"])
async def test_what_is_refused_leaves_nothing_behind(tmp_path: Path, bad: NewTask) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path}/redrive.db")
    await store.open()
    await store.close()
    with sqlite3.connect(tmp_path / "redrive.db") as connection:
        with pytest.raises(InvalidInput):
            enqueue_on(connection, [task("a"), bad], micros(time.time()))
        enqueue_on(connection, [task("c")], micros(time.time()))
    assert connection.execute("select idempotency_key from redrive_task").fetchall() == [("c",)]
    assert connection.execute("select key from redrive_idempotency_key").fetchall() == [("c",)]
    connection.close()
