"""A rollback that fails: the thread that everybody waits for lives on, and goes on with a new connection."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import RedriveError
from redrive.stores.sqlite.session import Session
from redrive.stores.sqlite.store import SqliteStore
from redrive.stores.sqlite.transaction import transaction


class CannotRollBack(sqlite3.Connection):
    """What SQLite does without memory or on a broken disk; ``close`` undoes what is open."""

    failure: type[Exception] = MemoryError

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "rollback":
            raise self.failure
        return super().execute(sql, *args)


@pytest.fixture(params=[MemoryError, sqlite3.OperationalError])
async def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    opened = SqliteStore(f"sqlite:///{tmp_path}/redrive.db")
    await opened.migrations.up()
    await opened._writer.close()
    original, made = sqlite3.connect, []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(1)
        return original(*args, **options, factory=CannotRollBack if len(made) == 1 else sqlite3.Connection)

    monkeypatch.setattr(CannotRollBack, "failure", request.param)
    monkeypatch.setattr(sqlite3, "connect", connect)
    yield opened
    await opened.close()


def _raises(_: Session) -> None:
    raise MemoryError


async def test_a_transaction_that_cannot_be_undone_ends_alone(store: SqliteStore) -> None:
    with pytest.raises(ZeroDivisionError):
        async with transaction(store._writer, lambda: lambda _: None) as tx:
            await tx.execute("create table lost (a int)")
            raise ZeroDivisionError
    found = await store._writer.run(lambda s: s.connection.execute("select 1 from sqlite_master where name = 'lost'"))
    assert found.fetchall() == []


async def test_a_request_that_cannot_be_undone_is_answered(store: SqliteStore) -> None:
    with pytest.raises((RedriveError, MemoryError)):
        await store._writer.run(_raises)
    assert await store._writer.run(lambda session: session.connection.in_transaction)


async def test_what_the_thread_did_not_expect_ends_no_one_elses_wait(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise RuntimeError("not foreseen")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="not foreseen"):
        patch.setattr(store._writer, "announce", breaks)
        await store._writer.run(lambda _: None)
    assert await store._writer.run(lambda _: 1) == 1
