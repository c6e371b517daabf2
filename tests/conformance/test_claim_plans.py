"""A claim by lanes (limited and bulk kinds) looks at each row once, also before the table was ever analyzed."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from tests.conformance.harness_postgres import PostgresHarness

pytestmark = pytest.mark.anyio
READY = 300
SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_nested_statements": "on",
    "client_min_messages": "log",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
}


async def test_a_claim_does_no_work_for_each_row_of_it_again(fresh_store_url: str) -> None:
    harness = PostgresHarness(fresh_store_url)
    await harness.limit("A", concurrency=READY)
    await harness.enqueue_many(READY)
    connection = await asyncpg.connect(harness.url)
    told: list[str] = []
    connection.add_log_listener(lambda _, message: told.append(message.message))
    try:
        await connection.execute("load 'auto_explain'")
    except asyncpg.PostgresError as error:
        pytest.skip(f"this server has no auto_explain: {error}")
    for name, value in SETTINGS.items():
        await connection.execute(f"set {name} = {value}")
    for _ in range(2):  # the first one sets them aside, into their lane
        picked = await candidates(connection)
    assert len(picked) == READY
    [plan] = [text for text in told if "with lane as" in text][-1:]
    loops = [int(found) for found in re.findall(r"(?:WindowAgg|Aggregate|Sort) .*?loops=(\d+)", plan)]
    assert loops and max(loops) == 1, plan
    await connection.close()
    await harness.close()


async def candidates(connection: asyncpg.Connection) -> Any:
    nothing = "null, null, null, null, null"
    sql = f"select picked from redrive.candidates($1, $1, true, array['default'], null, null, null, null, {nothing})"
    return await connection.fetchval(sql, READY) or ()
