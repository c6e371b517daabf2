"""A Commit that lands while its answer is lost: repeated where that can be told, and left to its owner where not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from redrive.errors import MayHaveLanded
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.task import NewTask
from redrive.stores.postgres.store import PostgresStore
from tests.proxy import Proxy

pytestmark = pytest.mark.anyio
COUNTS = """select (select count(*) from redrive.task), (select count(*) from redrive.audit),
  (select count(*) from redrive.posting)"""


@pytest.fixture
async def store(proxied_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(proxied_url)
    yield store
    await store.close()


def _task() -> NewTask:
    return NewTask(new_id(), "A", "default", None)


async def _without_an_answer(store: PostgresStore, proxy: Proxy, url: str, commit: Commit) -> tuple[Applied, list[int]]:
    """Returns what is answered in the end, and how much is there."""
    look = await asyncpg.connect(url)
    proxy.swallow_answers(b"COMMIT")
    asked = asyncio.create_task(store.apply(commit))
    async with asyncio.timeout(60):
        while not any(await look.fetchrow(COUNTS)):
            await asyncio.sleep(0.01)
    proxy.cut()
    proxy.restore()
    try:
        return await asked, list(await look.fetchrow(COUNTS))
    finally:
        assert list(await look.fetchrow(COUNTS)) == [1, len(commit.audits), len(commit.postings)]
        await look.close()


async def test_audit_rows_are_not_written_twice(store: PostgresStore, proxy: Proxy, postgres_url: str) -> None:
    commit = Commit(enqueues=[_task()], audits=[Audit("ann", "NOTE")], all_or_none=True)
    with pytest.raises(MayHaveLanded, match="all of it has landed, or nothing"):
        await _without_an_answer(store, proxy, postgres_url, commit)


async def test_tasks_and_postings_land_once_and_are_answered(
    store: PostgresStore, proxy: Proxy, postgres_url: str
) -> None:
    posting = Posting("p", (("system:world", -1), ("alice", 1)))
    commit = Commit(enqueues=[_task()], postings=[posting], all_or_none=True)
    applied, _ = await _without_an_answer(store, proxy, postgres_url, commit)
    assert [answer.id for answer in applied.enqueued] == [commit.enqueues[0].id]


async def test_what_comes_with_a_join_is_recognised_by_it(
    store: PostgresStore, proxy: Proxy, postgres_url: str
) -> None:
    commit = Commit(joins=[NewJoin(new_id())], enqueues=[_task()], audits=[Audit("ann", "NOTE")], all_or_none=True)
    applied, _ = await _without_an_answer(store, proxy, postgres_url, commit)
    assert [answer.id for answer in applied.enqueued] == [commit.enqueues[0].id]
