"""Tables of the full-text sink on PostgreSQL: deletions are forgotten after a time, nobody waits for a switch."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest

from redrive.outbox.sink import Pruned
from redrive.outbox.sinks.postgres_text import PostgresText
from redrive.outbox.verdict import Done, Superseded
from tests.outbox.sinks.events import delete, upsert

pytestmark = pytest.mark.anyio
DAY = 86_400.0


async def test_deletions_are_forgotten_after_a_time_and_nothing_else(empty_postgres_url: str) -> None:
    sink = PostgresText(empty_postgres_url)
    assert isinstance(sink, Pruned)
    await sink.write([upsert(n, 1) for n in (1, 2, 3)])
    await sink.write([delete(1, 2), delete(2, 2), delete(9, 2)])
    await sink.write([upsert(2, 3)])  # there again
    with psycopg.connect(empty_postgres_url) as db:
        db.execute("update documents set written_at = written_at - interval '10 days' where key <> 'note:9'")
    assert await sink.prune(11 * DAY, 10) == 0
    assert await sink.prune(9 * DAY, 10) == 1
    assert [one.key async for one in sink.scan()] == ["note:2", "note:3"]
    assert list(await sink.write([upsert(9, 1), upsert(1, 1)])) == [Superseded(), Done()]
    await sink.write([delete(3, 2)])
    assert await sink.prune(9 * DAY, 10) == 0, "it counts since it was deleted, not since it was there"
    await sink.close()


async def test_a_switch_does_not_wait_long_for_who_reads(empty_postgres_url: str) -> None:
    sink = PostgresText(empty_postgres_url)
    await sink.write([upsert(1, 1)])
    await sink.create("r1")
    with psycopg.connect(empty_postgres_url) as reader:
        reader.execute("select count(*) from documents")  # and stays in its transaction
        with pytest.raises(asyncpg.LockNotAvailableError):
            await sink.swap("r1")
        assert list(await sink.write([upsert(2, 1)])) == [Done()], "the others go on"
    await sink.swap("r1")
    assert [one.key async for one in sink.scan()] == []
    await sink.close()
