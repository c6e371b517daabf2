"""The view ``search_outbox_events``: the words of the outbox, and the three questions that people ask it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.ports.store import Heartbeat
from redrive.kernel.task import NewTask, State
from redrive.outbox import OUTBOX
from redrive_kit.conformance.harness import TERMINAL, Harness, failing
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness

pytestmark = pytest.mark.anyio
COLUMNS = """
id, entity_type, entity_id, op, event_version, status, attempts, next_retry_at, lease_until, processing_started_at,
processed_at, error_reason, error, replay_count, last_replayed_at, last_replayed_by, last_replayed_reason, created_at,
updated_at, projection"""
QUEUE, KIND = "outbox:notes", "OUTBOX:notes"
COUNTS = "select status, count(*) from {view} where processed_at is null group by status"
STUCK = """
select entity_id from {view} where status = 'processing'
  and (lease_until < {now} or processing_started_at < {long_ago}) order by entity_id
"""
OLDEST = """
select entity_id, attempts, next_retry_at is not null, error_reason from {view} where status = 'pending'
order by created_at, id limit 10
"""
POSTGRES = {
    "view": "search_outbox_events",
    "counts": "redrive.v_counts",
    "now": "now()",
    "long_ago": "now() - interval '600 s'",
}
TEXT = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now'{})"
SQLITE = {
    "view": "search_outbox_events",
    "counts": "redrive_total",
    "now": TEXT.format(""),
    "long_ago": TEXT.format(", '-600 seconds'"),
}


class Events:
    """A store with events in it, and questions in its dialect."""

    def __init__(self, harness: Harness, words: dict[str, str]) -> None:
        self.harness, self.words = harness, words

    async def ask(self, question: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await self.harness.sql(question.format(**self.words))]

    async def show(self, entity_id: str) -> dict[str, Any]:
        which = f"from {{view}} where entity_id = '{entity_id}'"
        found = await self.ask(f"select {COLUMNS} {which}")
        assert await self.ask(f"select * {which}") == found
        return dict(zip((name.strip() for name in COLUMNS.split(",")), found[0], strict=True))

    async def publish(self, entity_id: str, op: str = "upsert", version: int = 1) -> NewTask:
        document = {"entity_type": "note", "entity_id": entity_id, "op": op, "version": version, "payload": {"a": 1}}
        task = self.harness.new(KIND, queue=QUEUE, payload=json.dumps(document), scope=f"note:{entity_id}")
        await self.harness.enqueue(KIND, id=task.id, queue=QUEUE, payload=task.payload, scope=task.scope)
        return task

    async def claim(self) -> Any:
        return await self.harness.claim_one(queues=(QUEUE,))


@pytest.fixture(params=["sqlite", "postgres"])
async def events(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Events]:
    harness: Harness
    if request.param == "sqlite":
        harness = SqliteHarness(tmp_path / "events.db", (OUTBOX,))
        await harness.store.open()
    else:
        harness = PostgresHarness(request.getfixturevalue("postgres_url"), (OUTBOX,))
    yield Events(harness, SQLITE if request.param == "sqlite" else POSTGRES)
    await harness.close()


async def test_an_event_from_its_publication_to_its_end(events: Events) -> None:
    task = await events.publish("17:b", version=2**63 - 1)
    row = await events.show("17:b")
    assert (str(row["id"]), row["entity_type"], row["op"]) == (str(task.id), "note", "upsert")
    assert (row["event_version"], row["status"], row["attempts"]) == (2**63 - 1, "pending", 0)
    assert row["created_at"] == row["updated_at"] and row["lease_until"] is None

    claimed = await events.claim()
    row = await events.show("17:b")
    assert (row["status"], row["attempts"]) == ("processing", 1)
    assert row["lease_until"] > row["processing_started_at"] >= row["created_at"]

    await events.harness.settle(claimed, failing("no answer"))
    row = await events.show("17:b")
    assert (row["status"], row["error_reason"], row["error"]) == ("pending", "unknown_exception", "no answer")
    assert row["next_retry_at"] > row["created_at"] and row["lease_until"] is None

    await events.harness.advance(60)
    await events.harness.store.tick(Heartbeat("w1", "host", 1, (QUEUE,), 4, 0, "0", {}, False))
    await events.harness.settle(await events.claim(), Completed('{"op":"upsert","version":9}'))
    row = await events.show("17:b")
    assert (row["status"], row["op"], row["event_version"], row["attempts"]) == ("done", "upsert", 9, 2)
    assert row["processed_at"] == row["updated_at"] is not None and row["error"] is None


async def test_a_replay_is_told_while_it_waits_and_when_it_is_done(events: Events) -> None:
    task = await events.publish("1", op="not-a-real-op")
    await events.harness.settle(await events.claim(), TERMINAL)
    row = await events.show("1")
    assert (row["status"], row["op"], row["attempts"], row["next_retry_at"]) == ("failed", "not-a-real-op", 1, None)
    assert row["processed_at"] is None and row["error"] == "the shot is locked"

    await events.harness.operate(Event.REDRIVE, task.id, actor="alice", reason="mended")
    replayed = ("replay_count", "last_replayed_by", "last_replayed_reason", "error", "attempts")
    row = await events.show("1")
    assert [row[name] for name in replayed] == [1, "alice", "mended", None, 0] and row["status"] == "pending"
    await events.harness.settle(await events.claim(), Completed('{"op":"upsert","version":1}'))
    row = await events.show("1")
    assert [row[name] for name in replayed] == [1, "alice", "mended", None, 1] and row["status"] == "done"
    assert row["last_replayed_at"] is not None


async def test_the_three_questions(events: Events) -> None:
    for name in ("done", "failed", "slow", "silent", "running", "waits", "new"):
        await events.publish(name)
    await events.harness.enqueue("OTHER")
    claimed = {json.loads(one.payload)["entity_id"]: one for one in await events.harness.claim(5, queues=(QUEUE,))}
    await events.harness.settle(claimed["done"], Completed())
    await events.harness.settle(claimed["failed"], TERMINAL)
    await events.harness.settle((await events.claim()), failing())
    assert dict(await events.ask(COUNTS)) == {"pending": 2, "processing": 3, "failed": 1}
    oldest = await events.ask(OLDEST)
    assert [(row[0], row[1], bool(row[2]), row[3]) for row in oldest] == [
        ("waits", 1, True, "unknown_exception"),
        ("new", 0, False, None),
    ]
    assert await events.ask(STUCK) == []
    table, past = ("redrive_task", "1") if events.words is SQLITE else ("redrive.task", "'1990-01-01'")
    for column, name in (("lease_expires_at", "silent"), ("last_attempt_at", "slow")):
        await events.ask(f"update {table} set {column} = {past} where scope = 'note:{name}'")
    assert await events.ask(STUCK) == [("silent",), ("slow",)]


async def test_what_was_written_by_hand_does_not_hide_the_rest(events: Events) -> None:
    await events.publish("good")
    for payload in ('{"op": {"no": 1}, "version": "x"}', "[1]", '{"version": 1e400}', "null", '{"version": -3}'):
        await events.harness.enqueue(KIND, queue=QUEUE, payload=payload, scope="nothing")
    await events.harness.enqueue(KIND, queue=QUEUE, payload="{}", scope=None)
    assert dict(await events.ask(COUNTS)) == {"pending": 7}
    assert (await events.show("good"))["event_version"] == 1
    assert len(await events.ask("select * from {view}")) == 7


async def test_cancelled_and_paused_events_are_called_so(events: Events) -> None:
    paused, cancelled = await events.publish("p"), await events.publish("c", version=4)
    await events.harness.operate(Event.PAUSE, paused.id)
    await events.harness.operate(Event.CANCEL, cancelled.id)
    assert (await events.show("p"))["status"] == "paused"
    row = await events.show("c")
    assert (row["status"], row["event_version"], row["processed_at"] is None) == ("cancelled", 4, False)


async def test_questions_read_what_they_ask_for(events: Events) -> None:
    """Also where everything else is large: the plan names the indexes of the states, and reads no history."""
    for state in (State.COMPLETED, State.QUEUED, State.FAILED):
        await events.harness.stock(2000, state, kind="OTHER")
    await events.publish("one")
    if events.words is POSTGRES:
        await events.harness.sql("analyze")
        stuck = "\n".join(row[0] for row in await events.ask("explain " + STUCK))
        assert "task_lease" in stuck and "Seq Scan" not in stuck and "history" not in stuck, stuck
        counts = "\n".join(row[0] for row in await events.ask("explain " + COUNTS))
        assert "Seq Scan on history" not in counts and counts.count("Seq Scan on task") <= 1, counts
        oldest = "\n".join(row[0] for row in await events.ask("explain " + OLDEST))
        assert "history" not in oldest, oldest
    else:
        for question in (STUCK, COUNTS, OLDEST):
            plan = "\n".join(row[3] for row in await events.ask("explain query plan " + question))
            for state in ("ready", "due", "lease", "failed", "paused"):
                assert f"redrive_task_{state}" in plan, plan
            assert "SCAN t\n" not in plan, plan
            if question is COUNTS:  # others ask for a status, which history has not: no row of it is visited
                assert "SCAN h" not in plan and "redrive_history_outbox_processed (<expr>=?)" in plan, plan


AS_EARLIER = """insert into search_outbox_events (entity_type, entity_id, op, event_version, status)
values ('note', '9', '{}', 1, 'pending')"""


async def test_an_event_is_inserted_as_in_the_earlier_system(events: Events) -> None:
    await events.ask(AS_EARLIER.format("not-a-real-op"))
    row = await events.show("9")
    assert (row["projection"], row["op"], row["status"]) == ("search_index_to_elastic", "not-a-real-op", "pending")
    assert (row["event_version"], row["attempts"], row["entity_type"]) == (1, 0, "note")
    await events.ask(
        "insert into {view} (projection, entity_type, entity_id, op, event_version) "
        "values ('notes', 'note', '8', 'upsert', 2)"
    )
    assert (await events.show("8"))["projection"] == "notes"
    queues = dict(await events.ask("select queue, queued from {counts}"))
    assert queues == {"outbox:search_index_to_elastic": 1, "outbox:notes": 1}


REFUSED = [
    ("update {view} set op = 'delete'", "read-only|is a view"),
    ("delete from {view}", "read-only|is a view"),
    (
        "insert into {view} (entity_type, entity_id, op, event_version, status) values ('a', '1', 'x', 1, 'done')",
        "as pending",
    ),
    (
        "insert into {view} (entity_type, entity_id, op, event_version, error) values ('a', '1', 'x', 1, 'e')",
        "as pending",
    ),
    ("insert into {view} (entity_type, entity_id, op) values ('a', '1', 'x')", "version of an event"),
    ("insert into {view} (entity_id, op, event_version) values ('1', 'x', 1)", "entity type"),
]


async def test_other_changes_of_the_view_are_refused(events: Events) -> None:
    await events.publish("1")
    for change, said in REFUSED:
        with pytest.raises(Exception, match=said):
            await events.ask(change)
    assert await events.ask("select op, status from {view}") == [("upsert", "pending")]


async def test_a_table_of_somebody_else_stays(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "own.db")) as file, file:
        file.execute("create table search_outbox_events (mine text)")
    harness = SqliteHarness(tmp_path / "own.db", (OUTBOX,))
    await harness.store.open()
    await harness.sql("insert into search_outbox_events (mine) values ('x')")
    assert [tuple(row) for row in await harness.sql("select * from search_outbox_events")] == [("x",)]
    assert not await harness.sql("select name from sqlite_master where name = 'redrive_outbox_events_publish'")
    await harness.close()
