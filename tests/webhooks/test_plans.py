"""Statements about webhooks on PostgreSQL find their rows by an index, however many endpoints and deliveries there are.

REDRIVE_TEST_ROWS=1000000 looks at so many deliveries; plans are the same with fewer, which take seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from redrive.stores.sql import statements
from tests.plans import postgres_plan
from tests.webhooks.conftest import make_app

pytestmark = pytest.mark.anyio
ROWS = int(os.environ.get("REDRIVE_TEST_ROWS", "40000"))
SQL = statements("redrive.webhooks", "postgres.sql")
STOCK = f"""
insert into redrive.webhooks_endpoint
  (id, account, url, events, state, direct, failing_since, disabled_at, disabled_by, used_at)
select 'e' || n, 'a' || n / 3, 'https://example.com/' || n, '[]',
  case when n % 50 = 0 then 'disabled' else 'enabled' end,
  n % 2 = 0, case when n % 100 = 1 then now() - n * interval '1 s' end, case when n % 50 = 0 then now() end,
  case when n % 1000 = 0 then 'redrive' when n % 50 = 0 then 'ann' end, now() - n * interval '1 minute'
from generate_series(1, {ROWS}) n;
insert into redrive.webhooks_secret (id, owner, secret, created_at)
select 's' || n, 'endpoint:e' || n, 'x', now() - interval '400 days' from generate_series(1, {ROWS}) n;
insert into redrive.webhooks_delivery (task_id, endpoint_id, account, event_id, event_type, round, state, moved_at)
select lpad(to_hex(n), 32, '0')::uuid, 'e' || (1 + n % ({ROWS})), 'a' || (1 + n % ({ROWS})) / 3, 'v' || n, 'a.b', 0,
  case when n <= {ROWS} / 4 or n % 20 = 0 then 'failed' else 'completed' end, now() - ({ROWS} - n) * interval '10 s'
from generate_series(1, {ROWS}) n;
insert into redrive.webhooks_attempt (id, task_id, attempt, replay, at, outcome, ms, request)
select ('1' || lpad(to_hex(n), 31, '0'))::uuid, lpad(to_hex(n), 32, '0')::uuid, 1, 0,
  now() - ({ROWS} - n) * interval '10 s', 'ok', 1, 'x'
from generate_series(1, {ROWS}) n;
"""
TASK = "00000000-0000-0000-0000-000000000007"
SUBJECT = json.dumps({"scope": "a77", "tasks": [TASK], "tombstone": "erased:1", "limit": 500})
OLD = "2001-01-01"


def page(**given: Any) -> list[Any]:
    names = ["endpoint", "account", "state", "type", "event", "before"]
    return [given.get(name) for name in names] + [20]


CASES: dict[str, list[Any]] = {
    "endpoint_settled": [json.dumps([{"endpoint": f"e{n}", "ok": True, "gone": False} for n in range(1, 20)])],
    "endpoint_used": [json.dumps([{"id": "e8", "account": "a2", "url": "u"}])],
    "endpoint_disabled": [json.dumps([{"id": "e9", "by": "ann", "reason": "r"}])],
    "secrets_expire": [json.dumps([{"owner": "endpoint:e9", "seconds": 5}])],
    "delivery_moved": [json.dumps([{"task": TASK, "state": "failed"}])],
    "endpoint": ["e5"],
    "endpoints": [None, None, None, None, False, 20],
    "targets": ["a5"],
    "secrets": ["endpoint:e5"],
    "delivery": [TASK],
    "deliveries": page(),
    "deliveries_by_endpoint": page(endpoint="e5"),
    "deliveries_by_account": page(account="a5"),
    "deliveries_by_state": page(state="failed"),
    "deliveries_by_event": page(event="v5"),
    "rounds": ["v5", "e6"],
    "attempts": [TASK],
    "failing": [5.0],
    "given_up": [],
    "prune_attempts": [OLD, 500],
    "prune_deliveries": [OLD, 500],
    "prune_direct": [OLD, 500],
    "personal": [SUBJECT],
    "erase": [SUBJECT],
    "erase_deliveries": [SUBJECT],
    "erase_endpoints": [SUBJECT],
}
# What looks at every endpoint once in a while, and never at one several times.
WHOLE = {"endpoint_numbers": [], "unsigned": [], "prune_secrets": [OLD, 500], "erase_secrets": [SUBJECT]}


@pytest.fixture
async def stocked(fresh_postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    app = make_app(fresh_postgres_url)
    await app.migrate()
    await app.close()
    connection = await asyncpg.connect(fresh_postgres_url)
    await connection.execute(STOCK)
    await connection.execute("analyze")
    yield connection
    await connection.close()


async def test_rows_are_found_by_an_index_and_what_looks_at_all_looks_once(stocked: asyncpg.Connection) -> None:
    wrong = {}
    for name, args in CASES.items():
        plan = await postgres_plan(stocked, SQL[name], args)
        if "Seq Scan on webhooks_" in plan:
            wrong[name] = plan
    assert not wrong, "\n\n".join(f"{name}\n{plan}" for name, plan in wrong.items())
    for name, args in WHOLE.items():
        plan = await postgres_plan(stocked, SQL[name], args)
        assert "(SubPlan" not in plan, f"{name}\n{plan}"
