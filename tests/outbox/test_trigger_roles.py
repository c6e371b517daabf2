"""A trigger's function has the rights of whoever made it: writers of the table need none on redrive, and get none."""

from __future__ import annotations

import psycopg
import pytest

from redrive import App
from redrive.feature import Caller, Role
from redrive.outbox.triggers.service import TriggerService
from redrive.settings import load_settings
from tests.databases import Databases

pytestmark = pytest.mark.anyio


async def test_who_writes_to_the_table_needs_no_right_on_redrive(databases: Databases, database: str) -> None:
    url = databases.url(database)
    app = App(settings=load_settings(url=url, log_format="off"))
    app.outbox.projection("notes", sink="fts5:///unused.db")
    with psycopg.connect(url, autocommit=True) as owner, databases.role("web") as role:
        owner.execute("create table notes (id bigint primary key, title text)")
        operator = await app.operator(Caller("ann", Role.OPERATOR))
        owner.execute((await operator.of(TriggerService).script("notes", "notes")).encode())
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
