"""A trigger's function has the rights of whoever made it: writers of the table need none on redrive, and get none."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from redrive import App
from redrive.feature import Caller, Commit, Role, Rows
from redrive.ops.retention import retention_of
from redrive.outbox.lives import lives_of
from redrive.outbox.service import OutboxService
from redrive.outbox.sinks.fts5 import Fts5
from redrive.settings import load_settings
from tests.databases import Databases
from tests.worker.conftest import drain

pytestmark = pytest.mark.anyio


async def test_who_writes_to_the_table_needs_no_right_on_redrive(databases: Databases, database: str) -> None:
    url = databases.url(database)
    app = App(settings=load_settings(url=url, log_format="off"))
    app.outbox.projection("notes", sink="fts5:///unused.db")
    with psycopg.connect(url, autocommit=True) as owner, databases.role("web") as role:
        owner.execute("create table notes (id bigint primary key, title text)")
        operator = await app.operator(Caller("ann", Role.OPERATOR))
        owner.execute((await operator.of(OutboxService).trigger("notes", "notes")).encode())
        await app.close()
        owner.execute(f"grant select, insert, update, delete on notes to {role}")
        try:
            with psycopg.connect(databases.url(database, user=role)) as theirs:
                # A schema of their own in front of all others changes nothing of what the function calls.
                theirs.execute(
                    "create function pg_temp.to_jsonb(x anyelement) returns jsonb language sql as 'select null::jsonb'"
                )
                theirs.execute("insert into notes values (1, 'milk')")
                theirs.execute("update notes set title = 'butter'")
                theirs.commit()
                for refused in (
                    "select redrive.publish('n', 'a', 'b', 'c', 1)",
                    "select * from notes_outbox_notes_version",
                ):
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        theirs.execute(refused)
                    theirs.rollback()
                # Attached to a table of anybody's, it would publish whatever that table says.
                theirs.execute("create temporary table mine (id bigint, title text)")
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="for function"):
                    theirs.execute(
                        "create trigger t after insert on mine for each row execute function notes_outbox_notes()"
                    )
            found = owner.execute(
                "select op, entity_id from redrive.search_outbox_events order by event_version"
            ).fetchall()
            assert found == [("create", "1"), ("upsert", "1")]
            payload = owner.execute(
                "select payload -> 'payload' from redrive.v_tasks order by created_at limit 1"
            ).fetchone()
            assert payload == ({"id": 1, "title": "milk"},)
        finally:
            owner.execute(f"drop owned by {role}")
            owner.execute("drop table notes, notes_outbox_notes_version cascade")
            owner.execute("drop function notes_outbox_notes")


async def test_lives_of_keys_by_the_documented_grants(databases: Databases, database: str, tmp_path: Path) -> None:
    """A producer ends a life and begins the next, though it may not touch the table; a worker reads and prunes it."""
    url = databases.url(database)
    owner_app = App(settings=load_settings(url=url, log_format="off"))
    await owner_app.migrate()
    await owner_app.close()
    with (
        psycopg.connect(url, autocommit=True) as owner,
        databases.role("web") as web,
        databases.role("worker") as worker,
    ):
        owner.execute(f"select redrive.grant_producer('{web}'), redrive.grant_worker('{worker}')")
        own = load_settings(url=databases.url(database, user=worker), log_format="off", history_days=1e-7)
        app, fts = App(settings=own), Fts5(tmp_path / "search.db")
        app.outbox.projection("notes", sink=fts)
        try:
            with psycopg.connect(databases.url(database, user=web), autocommit=True) as theirs:
                for op, version, document in (
                    ("create", 3, "{}"),
                    ("delete", 4, None),
                    ("create", 1, '{"title": "x"}'),
                ):
                    theirs.execute(
                        "select redrive.publish('notes', 'note', '1', %s, %s, %s::jsonb)", (op, version, document)
                    )
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    theirs.execute("select * from redrive.outbox_life")
            await drain(app, queues=app.queues())
            assert await fts.get("note:1") == {"title": "x"}
            store = await app.store()
            assert (await lives_of(store, "notes", ["note:1"]))["note:1"].base == 5
            rows = ({"projection": "notes", "key": "note:2", "base": 7, "changes": -1},)
            await store.apply(Commit(rows=[Rows("outbox", "begin_lives", rows)]))
            await store.upkeep("prune", retention_of(own, app.features))
            with psycopg.connect(databases.url(database, user=web), autocommit=True) as theirs:
                theirs.execute("select redrive.publish('notes', 'note', '2', 'delete', 1)")
            assert (await lives_of(store, "notes", ["note:2"]))["note:2"].deleted == 1
        finally:
            await app.close()
            await fts.close()
            owner.execute(f"drop owned by {web}, {worker}")
