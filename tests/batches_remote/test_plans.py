"""What the duties of remote batches ask each second is found by an index, however many tasks and items there are."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.task import NewTask
from redrive.stores.sql import statements
from tests.batches_remote.conftest import make_app
from tests.plans import postgres_plan, sqlite_plan

ROWS, OTHERS, BATCHES = 10_000, 10_000, 50
KINDS = json.dumps(["BATCH_ITEM_VIDEO"])
CASES: dict[str, list[Any]] = {
    "items_called": [200],
    "items_overdue": [86_400, KINDS, 200, 21_600, 2],
    "flight_waiting": [1000, 200],
    "flights": [str(UUID(int=5))],
    "unknown_items": [None],
    "items_unknown": [None, str(UUID(int=0)), 0, 100],
    "items_unwanted": [200, None],
    "items_of": [json.dumps([str(UUID(int=n + 1)) for n in range(25)])],
    "remote_steps": [str(UUID(int=0)), 500],
    "remote_unended": [str(UUID(int=5))],
    "remote_processing": [],
    "item_of_task": [str(UUID(int=1))],
    "remote_last_moves": [json.dumps([str(UUID(int=n + 1)) for n in range(3)])],
}
BATCH = {"sqlite": "printf('00000000-0000-0000-0000-%012x', {0})", "postgres": "lpad(to_hex({0}), 32, '0')::uuid"}
STOCK = """
insert into {batches}remote (id, provider, price, state, round, items, created_by)
select {at_n}, 'video', 0, case when n % 5 = 0 then 'processing' else 'completed' end, 1, {each}, 'ann' from {numbers};
insert into {batches}item (batch, n, ordinal, state, task_id, job, called, started_at, brought_at)
select {at_b}, t.n / {b} + 1, t.n / {b} + 1, 'processing', t.id, 'j' || t.n,
  case when t.n % 1000 = 0 then 1 else 0 end, {now}, {now}
from (select id, row_number() over (order by id) as n from {task} where kind = 'BATCH_ITEM_VIDEO') t;
"""


async def _enqueue(url: str) -> None:
    """Brings tasks of items, which wait for their next poll, and as many others."""
    app = make_app(url)
    await app.migrate()
    store = await app.store()
    for kind, number in (("BATCH_ITEM_VIDEO", ROWS), ("OTHER", OTHERS)):
        tasks = [NewTask(new_id(), kind, "default", None, delay=3600.0, own=True) for _ in range(number)]
        await store.apply(Commit(enqueues=tasks))
    await app.close()


def _stock(store: str, batches: str, task: str, numbers: str, now: str) -> str:
    at_n, at_b = BATCH[store].format("n"), BATCH[store].format(f"t.n % {BATCHES} + 1")
    named = {"batches": batches, "task": task, "numbers": numbers, "now": now, "at_n": at_n, "at_b": at_b}
    return STOCK.format(**named, each=ROWS // BATCHES, b=BATCHES)


@pytest.fixture
async def stocked(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    await _enqueue(fresh_postgres_url)
    connection = await asyncpg.connect(fresh_postgres_url)
    numbers = f"generate_series(1, {BATCHES}) n"
    await connection.execute(_stock("postgres", "redrive.batches_", "redrive.task", numbers, "now()"))
    await connection.execute("analyze")
    yield connection
    await connection.close()


async def test_on_postgres(stocked: asyncpg.Connection) -> None:
    sql, wrong = statements("redrive.batches", "postgres.sql"), {}
    for name, args in CASES.items():
        plan = await postgres_plan(stocked, sql[name], args)
        if re.search(r"Seq Scan on (task|batches_item)\b", plan):
            wrong[name] = plan
        if name == "items_overdue":
            assert "Index Cond: (COALESCE(" in plan, "those that wait for less are not read"
    assert not wrong, "\n\n".join(f"{name}\n{plan}" for name, plan in wrong.items())


async def test_on_sqlite(tmp_path: Path) -> None:
    await _enqueue(f"sqlite:///{tmp_path}/redrive.db")
    numbers = f"(with recursive x(n) as (select 1 union all select n + 1 from x where n < {BATCHES}) select n from x)"
    with sqlite3.connect(tmp_path / "redrive.db") as connection:
        now = "unixepoch() * 1000000"
        connection.executescript(_stock("sqlite", "redrive_batches_", "redrive_task", numbers, now))
        connection.execute("analyze")
        sql, wrong = statements("redrive.batches", "sqlite.sql"), {}
        for name, args in CASES.items():
            plan = sqlite_plan(connection, sql[name], args)
            if re.search(r"SCAN [ti]\b(?! USING (COVERING )?INDEX redrive_batches_item_(called|held|unknown))", plan):
                wrong[name] = plan
    connection.close()
    assert not wrong, "\n\n".join(f"{name}\n{plan}" for name, plan in wrong.items())
