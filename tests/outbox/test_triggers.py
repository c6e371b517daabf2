"""Triggers as they are printed: run on both stores, they project a table with no change to the application."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import psycopg
import pytest

from redrive import App
from redrive.cli.main import run
from redrive.errors import ConfigError, InvalidInput, NotFound
from redrive.feature import Caller, Role
from redrive.kernel.task import State
from redrive.outbox.service import OutboxService
from redrive.outbox.source import Record, Source
from redrive.outbox.table_source import Table as TableOf
from redrive.outbox.table_source import source_for
from tests.outbox.conftest import BOTH_STORES, World

pytestmark = pytest.mark.anyio
HOSTILE = "no\"te's $redrive$ */ -- \n;drop"


class Table:
    """A world whose application writes to its own table by plain SQL, and knows nothing of the outbox."""

    def __init__(self, world: World, url: str) -> None:
        self.world, self.url = world, url
        self.postgres = url.startswith("postgres")

    @property
    def app(self) -> App:
        return self.world.app

    def run(self, *statements: str, commit: bool = True) -> list[Any]:
        """Runs statements in one transaction; returns the rows of the last."""
        if self.postgres:
            with psycopg.connect(self.url) as connection:
                for statement in statements:
                    cursor = connection.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
                connection.commit() if commit else connection.rollback()
                return found
        with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
            connection.execute("begin immediate")
            for statement in statements:
                found = connection.execute(statement).fetchall()
            connection.commit() if commit else connection.rollback()
            return found

    async def script(self, table: str = "notes", **options: Any) -> str:
        operator = await self.app.operator(Caller("ann", Role.OPERATOR))
        return await operator.of(OutboxService).trigger(table, options.pop("projection", "notes"), **options)

    async def install(self, table: str = "notes", **options: Any) -> None:
        text = await self.script(table, **options)
        if self.postgres:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(text.encode())
        else:
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as connection:
                connection.executescript(text)

    async def source(self) -> Source:
        return await source_for(await self.app.store(), self.app.outbox.projections["notes"])

    async def check_same(self) -> None:
        """Checks that the sink has what the source has, document by document and version by version."""
        await self.world.drain()
        source = await self.source()
        page = await source.page(None, 1000)
        assert page.next is None
        kept = {one.key: (one.version, one.payload) for one in page.records}
        versions = await self.world.versions()
        assert versions == {key: version for key, (version, _) in kept.items()}
        assert {key: await self.world.fts.get(key) for key in versions} == {k: body for k, (_, body) in kept.items()}


@pytest.fixture
async def table(world: World, url: str) -> AsyncIterator[Table]:
    found = Table(world, url)
    found.run("create table notes (id integer primary key, title text, version integer not null default 1)")
    yield found


@BOTH_STORES
@pytest.mark.parametrize("version", ["sequence", "version"])
async def test_a_table_is_projected(table: Table, version: str) -> None:
    await table.install(version=version)
    table.run(
        "insert into notes (id, title) values (1, 'milk'), (2, 'bread')",
        "update notes set title = 'butter', version = version + 1 where id = 2",
        "delete from notes where id = 1",
    )
    await table.check_same()
    [hit] = await table.world.fts.search("butter")
    assert hit.key == "notes:2" and hit.document == {"id": 2, "title": "butter", "version": 2}
    tasks = await table.world.tasks()
    assert len(tasks) == 4 and {task.state for task in tasks} == {State.COMPLETED}
    assert {task.max_attempts for task in tasks} == {10}


@BOTH_STORES
async def test_events_are_part_of_the_transaction(table: Table) -> None:
    await table.install()
    table.run("insert into notes (id, title) values (1, 'milk')", commit=False)
    assert await table.world.tasks() == []
    store = await table.app.store()
    assert [count for count in await store.counts() if count.n] == []


@BOTH_STORES
async def test_an_id_that_comes_back_is_newer_than_its_deletion(table: Table) -> None:
    await table.install()
    table.run(
        "insert into notes (id, title) values (1, 'milk')", "delete from notes", "insert into notes values (1, 'b', 1)"
    )
    await table.check_same()
    assert await table.world.fts.get("notes:1") == {"id": 1, "title": "b", "version": 1}
    table.run("delete from notes")
    await table.check_same()
    assert await table.world.versions() == {}


@BOTH_STORES
async def test_a_changed_id_takes_the_old_document_away(table: Table) -> None:
    await table.install()
    table.run("insert into notes (id, title) values (1, 'milk')")
    await table.check_same()
    table.run("update notes set id = 5")
    await table.check_same()
    assert set(await table.world.versions()) == {"notes:5"}


@BOTH_STORES
async def test_chosen_columns_and_names(table: Table) -> None:
    await table.install(entity_type="note", columns=["title"])
    table.run("insert into notes (id, title) values (1, 'milk')")
    await table.check_same()
    assert await table.world.fts.get("note:1") == {"title": "milk"}
    await table.install(entity_type="note")  # printed again, it replaces the other
    table.run("update notes set title = 'cream'")
    await table.check_same()
    assert (await table.world.fts.get("note:1"))["id"] == 1


@BOTH_STORES
async def test_hostile_names_stay_names(table: Table) -> None:
    quoted = '"' + HOSTILE.replace('"', '""') + '"'
    table.run(f'create table {quoted} ({quoted} text primary key, {quoted[:-1]}v" text)')
    await table.install(HOSTILE, entity_type="it's", columns=[HOSTILE, HOSTILE + "v"])
    table.run(f"insert into {quoted} values ('k''1', null)", f"update {quoted} set {quoted[:-1]}v\" = 'x'")
    await table.check_same()
    assert await table.world.fts.get("it's:k'1") == {HOSTILE: "k'1", HOSTILE + "v": "x"}
    table.run(f"delete from {quoted}")
    await table.check_same()
    source = await table.source()
    assert list(await source.fetch(["it's:k'1"])) == []


@BOTH_STORES
async def test_long_names_and_wide_tables(table: Table) -> None:
    long = "a" * 60
    columns = [f"column_{n}" for n in range(150)]
    table.run(f"create table {long} (id integer primary key, {', '.join(f'{one} text' for one in columns)})")
    await table.install(long)
    table.run(f"insert into {long} (id, column_149) values (7, 'last')")
    await table.check_same()
    document = await table.world.fts.get(f"{long}:7")
    assert len(document) == 151 and document["column_149"] == "last" and document["column_0"] is None


@BOTH_STORES
async def test_several_tables_feed_one_projection(table: Table) -> None:
    table.run("create table tags (name varchar(20) primary key)")
    await table.install()
    await table.install("tags", entity_type="tag")
    table.run("insert into notes (id, title) values (10, 'a'), (9, 'b')", "insert into tags values ('x'), ('y')")
    await table.world.drain()
    source = await table.source()
    records, place = [], None
    while True:
        page = await source.page(place, 1)
        records += page.records
        if (place := page.next) is None:
            break
    assert [one.key for one in records] == ["notes:9", "notes:10", "tag:x", "tag:y"]
    assert {one.key for one in await source.fetch(["tag:y", "notes:9", "notes:no", "other:1"])} == {"tag:y", "notes:9"}


@BOTH_STORES
async def test_rows_from_before_the_trigger_have_version_0(table: Table) -> None:
    table.run("insert into notes (id, title) values (1, 'old'), (10, 'old'), (2, 'old')")
    await table.install(entity_type="note")
    table.run("update notes set title = 'new' where id = 2", "insert into notes values (33, 'x', 1)")
    records = (await (await table.source()).page(None, 9)).records
    assert [one.key for one in records if one.version == 0] == ["note:1", "note:10"]
    assert [one.key for one in records if one.version > 0] == ["note:2", "note:33"]


UNFIT: list[tuple[str, dict[str, Any], str]] = [
    ("pairs", {}, "several columns"),
    ("bare", {}, "has no primary key"),
    ("bare", {"id": "a"}, "is not unique"),
    ("bare", {"id": "b"}, "has no column 'b'"),
    ("seen", {}, "is a view"),
    ("notes", {"version": "title"}, "not a whole number"),
    ("notes", {"columns": ["nope"]}, "no column 'nope'"),
    ("notes", {"entity_type": "a:b"}, "entity type"),
    ("notes", {"projection": "a b"}, "projection"),
]


@BOTH_STORES
async def test_what_cannot_be_projected_is_refused(table: Table) -> None:
    table.run("create table pairs (a integer, b integer, primary key (a, b))", "create table bare (a integer)")
    table.run("create view seen as select 1 as id")
    own = "redrive.task" if table.postgres else "redrive_task"
    for name, options, said in [*UNFIT, (own, {}, "redrive")]:
        with pytest.raises(InvalidInput, match=said) as caught:
            await table.script(name, **options)
        assert caught.value.hint or "projection" in said
    with pytest.raises(NotFound, match="no table 'nowhere'"):
        await table.script("nowhere")


async def test_a_unique_column_may_be_the_id(table: Table) -> None:
    table.run("create table pairs (a integer, b integer, code text not null unique, primary key (a, b))")
    await table.install("pairs", id="code")
    table.run("insert into pairs values (1, 2, 'x')")
    await table.check_same()
    assert set(await table.world.versions()) == {"pairs:x"}


@BOTH_STORES
async def test_bytes_and_other_types_become_json(table: Table) -> None:
    kinds = ("bytea", "uuid", "numeric", "jsonb") if table.postgres else ("blob", "text", "real", "text")
    a, b, c, d = kinds
    table.run(f"create table kinds (id {b} primary key, a {a}, c {c}, d {d})")
    await table.install("kinds")
    raw = "'\\x00ff'" if table.postgres else "x'00ff'"
    key = "0190a1b2-0000-7000-8000-000000000001"
    table.run(f"insert into kinds values ('{key}', {raw}, 1.5, '{{\"x\": [1]}}')")
    await table.check_same()
    source = await table.source()
    assert [one.key for one in await source.fetch([f"kinds:{key}", "kinds:nothing"])] == [f"kinds:{key}"]


async def test_the_command_prints_what_can_be_run(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["outbox", "trigger", "notes", "-p", "notes", "--columns", "id, title", "--url", table.url]
    assert await asyncio.to_thread(run, arguments) == 0
    script, then = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert script == (await table.script(columns=["id", "title"])).strip()
    assert then.startswith("-- ") and then.endswith("redrive outbox rebuild notes")
    assert await asyncio.to_thread(run, [*arguments[:2], "nowhere", *arguments[3:]]) != 0
    assert "no table 'nowhere'" in capsys.readouterr().err


async def test_a_declared_source_is_read_in_the_order_of_keys(table: Table) -> None:
    @table.app.outbox.source("notes")
    class Notes:
        entities: ClassVar = {f"note:{n}": Record("note", str(n), n, {"n": n}) for n in (1, 10, 2)}

        async def scan(self, after: str, limit: int) -> list[Record]:
            return [self.entities[key] for key in sorted(self.entities) if key > after][:limit]

        async def fetch(self, keys: Sequence[str]) -> list[Record]:
            return [self.entities[key] for key in keys if key in self.entities]

    source = await table.source()
    page = await source.page("note:1", 1)
    assert ([one.key for one in page.records], page.next) == (["note:10"], "note:10")
    with pytest.raises(ConfigError, match="is no source"):
        table.app.outbox.source("notes")(object())


async def test_a_table_without_a_trigger_may_be_the_source(table: Table) -> None:
    table.run("insert into notes (id, title, version) values (1, 'milk', 7)")
    projection = table.app.outbox.projections["notes"]
    with pytest.raises(InvalidInput, match="has no source"):
        await table.source()
    for declared in ("notes", TableOf("notes", entity_type="notes", columns=["title"])):
        projection.source = declared
        source = await table.source()
        assert [(one.key, one.version) for one in (await source.page(None, 9)).records] == [("notes:1", 7)]
    assert [one.payload for one in await source.fetch(["notes:1"])] == [{"title": "milk"}]
    projection.source = TableOf("notes", version="sequence")
    with pytest.raises(InvalidInput, match="no versions without a trigger"):
        await table.source()
