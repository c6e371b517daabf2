"""Migrations on SQLite: up, down, from many processes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import InvalidInput, SchemaError
from redrive.stores.schema import LAST
from redrive.stores.sqlite.migrate import STEPS
from redrive.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
LATEST = len(STEPS)


def catalog(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("select type, name, tbl_name, sql from sqlite_master order by 1, 2").fetchall()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(f"sqlite:///{path}")
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def migrated(tmp_path: Path) -> Path:
    path = tmp_path / "migrated.db"
    async with opened(path) as store:
        await store.migrations.up()
    return path


async def test_down_to_nothing_and_up_is_the_same_schema(migrated: Path) -> None:
    before = catalog(migrated)
    async with opened(migrated) as store:
        assert await store.migrations.down(0) == [step.label for step in reversed(STEPS)]
        assert [name for _, name, *_ in catalog(migrated) if not name.startswith("sqlite_")] == ["redrive_migration"]
        await store.migrations.up()
    assert catalog(migrated) == before


async def test_down_to_nothing_is_refused_while_somebody_has_the_file_open(migrated: Path) -> None:
    before = catalog(migrated)
    async with opened(migrated) as store:
        with closing(sqlite3.connect(migrated)) as other:
            other.execute("select count(*) from redrive_task").fetchone()
            with pytest.raises(SchemaError, match="is open elsewhere"):
                await store.migrations.down(0)
        assert catalog(migrated) == before
        await store.migrations.down(0)


async def test_a_file_from_before_the_steps_were_joined_is_taken_over(migrated: Path) -> None:
    last, digest = LAST["sqlite", ""]
    with closing(sqlite3.connect(migrated)) as connection, connection:
        connection.execute("delete from redrive_migration")
        steps = [("", n, "x", 0, 1, digest if n == last else f"digest {n}") for n in range(1, last + 1)]
        connection.executemany("insert into redrive_migration values (?, ?, ?, ?, ?, ?)", steps)
    async with opened(migrated) as store:
        assert await store.migrations.up() == []
        await store.open()
        assert [(version, name) for version, name, _ in (await store.migrations.status()).applied] == [(1, "tables")]


async def test_five_at_once(tmp_path: Path, migrated: Path) -> None:
    path = tmp_path / "five.db"
    stores = [SqliteStore(f"sqlite:///{path}") for _ in range(5)]
    done = await asyncio.gather(*(store.migrations.up() for store in stores))
    assert sorted(label for labels in done for label in labels) == [step.label for step in STEPS]
    for store in stores:
        await store.open()
        await store.close()
    assert catalog(path) == catalog(migrated)


@pytest.mark.parametrize("to", [-1, LATEST + 1])
async def test_an_unknown_version_is_refused(migrated: Path, to: int) -> None:
    async with opened(migrated) as store:
        for move in (store.migrations.up, store.migrations.down):
            with pytest.raises(InvalidInput, match="no schema version"):
                await move(to)


@pytest.mark.parametrize("needs", [1, LATEST + 1])
async def test_only_a_newer_breaking_schema_is_refused(migrated: Path, needs: int) -> None:
    with closing(sqlite3.connect(migrated)) as connection, connection:
        connection.execute(
            "insert into redrive_migration values ('', ?, 'from_the_future', 0, ?, 'x')", (LATEST + 1, needs)
        )
    async with opened(migrated) as store:
        if needs == 1:
            await store.open()
            return
        with pytest.raises(SchemaError, match=f"this redrive knows {LATEST}"):
            await store.open()


async def test_the_printed_script_makes_the_same_schema(tmp_path: Path, migrated: Path) -> None:
    """Executed as the sqlite3 shell would; afterwards redrive knows that it is done."""
    path = tmp_path / "script.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SqliteStore(f"sqlite:///{path}").migrations.sql())
    assert catalog(path) == catalog(migrated)
    async with opened(path) as store:
        assert await store.migrations.up() == []
        await store.open()


async def test_the_printed_script_goes_down_too(migrated: Path) -> None:
    async with opened(migrated) as store:
        with closing(sqlite3.connect(migrated)) as connection:
            connection.executescript(store.migrations.sql(down=True, to=0))
        assert await store.migrations.up() == [step.label for step in STEPS]


async def test_a_database_of_a_development_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "redrive.db"
    async with opened(path) as store:
        await store.migrations.up()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("update redrive_migration set digest = 'other' where version = 1")
        connection.commit()
    async with opened(path) as store:
        for work in (store.open, store.migrations.up, store.migrations.status):
            with pytest.raises(SchemaError, match="another 0001_tables than this version's"):
                await work()


async def test_views_are_read_only(tmp_path: Path) -> None:
    """As everywhere on SQLite, unless somebody gives a view triggers: ours have none."""
    store = SqliteStore(f"sqlite:///{tmp_path}/views.db")
    await store.open()
    await store.close()
    views = ("v_tasks", "v_failures", "v_dead_letters", "v_audit", "v_counts", "v_failed_counts")
    with closing(sqlite3.connect(tmp_path / "views.db")) as connection:
        for view in views:
            for statement in (
                f"delete from redrive_{view}",
                f"insert into redrive_{view} default values",
                f"update redrive_{view} set kind = 'x'",
            ):
                with pytest.raises(sqlite3.OperationalError, match="because it is a view"):
                    connection.execute(statement)
            connection.execute(f"select * from redrive_{view}")
