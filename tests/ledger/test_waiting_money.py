"""Money that waits for an account on PostgreSQL: little of it at the server, and nobody else waits with it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.ledger import Posting
from redrive.kernel.task import NewTask
from redrive.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.anyio
WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def credit(key: str) -> Commit:
    return Commit(postings=[Posting(key, (("system:credit", -1), ("acme", 1)))])


async def test_two_of_a_process_wait_at_the_server_and_others_are_served(fresh_store_url: str) -> None:
    store = PostgresStore(fresh_store_url)
    await store.apply(credit("first"))
    with psycopg.connect(fresh_store_url) as holder, psycopg.connect(fresh_store_url, autocommit=True) as looking:

        def waiting() -> int:
            found = looking.execute(WAITING).fetchone()
            assert found is not None
            return int(found[0])

        holder.execute("select 1 from redrive.account where name = 'acme' for update")
        moved = [asyncio.create_task(store.apply(credit(f"c{n}"))) for n in range(8)]
        async with asyncio.timeout(60):
            while waiting() < 2:
                await asyncio.sleep(0.02)
            # Behind all of them: were they at the server, each on a connection, there would be none left for this.
            await store.apply(Commit(enqueues=[NewTask(new_id(), "A", "default", None)]))
        assert waiting() == 2
        holder.rollback()
        await asyncio.gather(*moved)
        assert looking.execute("select balance from redrive.account where name = 'acme'").fetchone() == (9,)
    await store.close()
