"""``redrive.publish(…)``: what it stores, what it refuses, and who may call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

import redrive.outbox
from redrive import App
from redrive.outbox.event import Op, event_of
from redrive.settings import load_settings
from tests.databases import Databases

pytestmark = pytest.mark.anyio
STEPS = Path(redrive.outbox.__file__).parent / "migrations" / "postgres"
Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(postgres_url: str) -> Iterator[Connection]:
    with psycopg.connect(postgres_url) as found:
        yield found


def one(connection: Connection, statement: str, *args: Any) -> Any:
    row = connection.execute(statement.encode(), args).fetchone()
    return None if row is None else row[0] if len(row) == 1 else row


def test_what_it_stores_is_an_event(connection: Connection) -> None:
    call = "select redrive.publish('notes', 'note', 'a:b', 'update', 9223372036854775807, '{\"title\": \"x\"}', 'ann')"
    event_id = one(connection, call)
    kind, queue, scope, attempts, feature, payload = one(
        connection,
        "select kind, queue, scope, max_attempts, feature, payload from redrive.task where id = %s",
        event_id,
    )
    assert (kind, queue, scope, attempts, feature) == ("OUTBOX:notes", "outbox:notes", "note:a:b", 10, None)
    event = event_of(event_id, payload)
    assert (event.key, event.op, event.version) == ("note:a:b", Op.UPSERT, 2**63 - 1)
    assert (event.payload, event.routing) == ({"title": "x"}, "ann")


def test_names_of_arguments_and_unknown_ops(connection: Connection) -> None:
    """Any op is stored: the relay refuses it, with the event alone."""
    event_id = one(
        connection,
        "select redrive.publish(projection => 'notes', entity_type => 'note', entity_id => '1', op => 'not-a-real-op',"
        " version => 0, max_attempts => 3)",
    )
    found = one(connection, "select op, event_version from redrive.search_outbox_events where id = %s", event_id)
    assert found == ("not-a-real-op", 0)
    assert one(connection, "select max_attempts from redrive.task where id = %s", event_id) == 3


UNFIT = [
    ("'a b', 'note', '1', 'upsert', 1", "projection 'a b' is not a valid name"),
    (f"'{'n' * 101}', 'note', '1', 'upsert', 1", "at most 100"),
    ("null, 'note', '1', 'upsert', 1", "projection null"),
    ("'n', 'no:te', '1', 'upsert', 1", "without a colon"),
    ("'n', null, '1', 'upsert', 1", "entity type"),
    ("'n', 'note', '', 'upsert', 1", "no id"),
    ("'n', 'note', '1', null, 1", "op must be"),
    (f"'n', 'note', '1', '{'x' * 41}', 1", "op must be"),
    ("'n', 'note', '1', 'upsert', -1", "whole number from 0 on"),
    ("'n', 'note', '1', 'upsert', null", "whole number from 0 on"),
    ("'n', 'note', E'a\\nb', 'upsert', 1", "scope must be text"),
    ("'n', 'note', '1', 'upsert', 1, '{}', ''", "routing must be text"),
]


def test_what_cannot_be_an_event_is_refused(connection: Connection) -> None:
    for arguments, said in UNFIT:
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=said) as caught:
            one(connection, f"select redrive.publish({arguments})")
        assert caught.value.diag.message_hint, arguments
        connection.rollback()


def test_it_is_part_of_the_callers_transaction(postgres_url: str, connection: Connection) -> None:
    one(connection, "select redrive.publish('notes', 'note', '1', 'upsert', 1, '{}')")
    connection.rollback()
    assert one(connection, "select count(*) from redrive.search_outbox_events") == 0
    one(connection, "select redrive.publish('notes', 'note', '1', 'upsert', 1, '{}')")
    connection.commit()
    with psycopg.connect(postgres_url) as other:
        assert one(other, "select count(*) from redrive.search_outbox_events") == 1
        assert one(other, "select queued from redrive.v_counts where kind = 'OUTBOX:notes'") == 1


def test_who_may_publish_and_look(databases: Databases, database: str) -> None:
    publish = "select redrive.publish('notes', 'note', '1', 'upsert', 1, '{}')"
    look = "select count(*), max(status), max(entity_id) from redrive.search_outbox_events"
    short = "select count(*), max(projection) from search_outbox_events"
    insert = (
        "insert into search_outbox_events (entity_type, entity_id, op, event_version, status) "
        "values ('note', '1', 'not-a-real-op', 1, 'pending')"
    )
    errors = {"select error from redrive.search_outbox_events", "select error from search_outbox_events"}
    tried = {publish, look, short, insert, insert.replace("into ", "into redrive."), *errors}
    allowed = {
        "producer": {publish, insert, insert.replace("into ", "into redrive.")},
        "worker": {publish, look, short, *errors},
        "viewer": {look, short},
        "stranger": set[str](),
    }
    with psycopg.connect(databases.url(database), autocommit=True) as owner, ExitStack() as stack:
        for what, may in allowed.items():
            role = stack.enter_context(databases.role(what))
            stack.callback(owner.execute, f"drop owned by {role}")
            if what != "stranger":
                owner.execute(f"select redrive.grant_{what}('{role}')")
            with psycopg.connect(databases.url(database, user=role), autocommit=True) as theirs:
                for statement in tried:
                    if statement in may:
                        theirs.execute(statement)
                    else:
                        with pytest.raises(psycopg.errors.InsufficientPrivilege):
                            theirs.execute(statement)
        for change in ("delete from {}search_outbox_events", "update {}search_outbox_events set op = 'x'"):
            for schema in ("", "redrive."):
                with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="read-only"):
                    owner.execute(change.format(schema).encode())


async def test_a_producer_from_before_the_upgrade_may_publish(databases: Databases) -> None:
    """A role that could enqueue gets what a feature brings for producers with the step that brings it."""
    with databases.fresh() as name, databases.role("web") as role:
        url = databases.url(name)
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"select redrive.grant_producer('{role}')")
            owner.execute((STEPS / "0001_tables.down.sql").read_bytes())
            owner.execute("delete from redrive.migration where feature = 'outbox'")
            owner.execute("delete from redrive.function_set where feature = 'outbox'")
        app = App(settings=load_settings(url=url, log_format="off"))
        await app.migrate()
        await app.close()
        with psycopg.connect(databases.url(name, user=role), autocommit=True) as theirs:
            assert one(theirs, "select redrive.publish('notes', 'note', '1', 'upsert', 1, '{}')") is not None
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"drop owned by {role}")


async def looked(url: str, query: str) -> Any:
    with psycopg.connect(url) as connection:
        return one(connection, query)


async def test_the_view_is_in_public_where_nothing_else_has_its_name(databases: Databases) -> None:
    with databases.fresh() as name:
        url = databases.url(name)
        app = App(settings=load_settings(url=url, log_format="off"))
        migrations = (await app.store()).migrations
        assert await looked(url, "select to_regclass('public.search_outbox_events')") is not None
        await migrations.down(0)
        assert await looked(url, "select to_regclass('public.search_outbox_events')") is None
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute("create table search_outbox_events (mine integer)")
        await app.migrate()
        assert await looked(url, "select count(*) from redrive.search_outbox_events") == 0
        await migrations.down(0)
        assert await looked(url, "select count(*) from search_outbox_events") == 0, "somebody's own table stays"
        await app.close()
