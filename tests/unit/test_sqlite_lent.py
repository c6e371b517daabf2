"""The connection that a handler is lent: what it leaves there reaches neither the next one nor redrive."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from redrive.stores.sqlite.store import SqliteStore
from redrive.stores.sqlite.transaction import transaction


@pytest.fixture(params=["file", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore("sqlite:///:memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/redrive.db")
    await opened.open()
    yield opened
    await opened.close()


async def lent(store: SqliteStore, *statements: str, fails: bool = False) -> list[Any]:
    """Runs these in one block, as a handler does; returns what the last one found."""
    found: list[Any] = []
    try:
        async with transaction(store._writer, lambda: lambda _: None) as tx:
            for statement in statements:
                found = [tuple(row) for row in await tx.fetch(statement)]
            if fails:
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    return found


@pytest.mark.parametrize("fails", [False, True], ids=["committed", "rolled back"])
async def test_attached_files_are_detached(store: SqliteStore, tmp_path: Path, fails: bool) -> None:
    for n in range(12):  # SQLite has room for ten
        await lent(store, f"attach '{tmp_path}/other {n}.db' as \"a {n}\"", fails=fails)
    assert [row[1] for row in await lent(store, "pragma database_list") if row[1] != "temp"] == ["main"]


async def test_whatever_is_temporary_goes(store: SqliteStore) -> None:
    await lent(
        store,
        'create temp table "a ""quoted"" one" (n integer)',
        'create index temp.i on "a ""quoted"" one" (n)',
        'create temp view v as select * from "a ""quoted"" one"',
        "create temp view redrive_history as select 1 as n",
        "create temp trigger t after insert on redrive_task begin select raise(abort, 'no more tasks'); end",
        "create temp table counted (n integer primary key autoincrement)",
        "insert into counted default values",
    )
    assert await lent(store, "select name from temp.sqlite_master where name not like 'sqlite_%'") == []
    assert (await lent(store, "select count(*) from redrive_history where finished_at > 0")) == [(0,)]


async def test_a_clean_connection_is_kept(store: SqliteStore) -> None:
    await lent(store, "create table mine (n integer)")
    before = store._writer._connection
    await lent(store, "insert into mine values (1)")
    await lent(store, "insert into mine values (2)", fails=True)
    assert store._writer._connection is before
    assert await lent(store, "select n from mine") == [(1,)]
