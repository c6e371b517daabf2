"""By when they failed: what lies before and behind is not read, however much it is and whatever else is asked for."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.task import State
from redrive.stores.postgres.reads import FILTERS as POSTGRES
from redrive.stores.sql import statements
from redrive.stores.sqlite.reads import FILTERS as SQLITE
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.conformance.test_member_plans import filled
from tests.ops.conftest import harness  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio
# One a minute, the last one now.
SPREAD = {
    "sqlite": "update redrive_task set failed_at = (unixepoch('now')"
    " - (select max(s.failed_seq) from redrive_task s) * 60 + failed_seq * 60) * 1000000",
    "postgres": "update redrive.task t set failed_at = now()"
    " - (m.last - t.failed_seq) * interval '1 minute' from (select max(failed_seq) as last from redrive.task) m",
}
NUMBER = 20_000


@pytest.mark.parametrize("more", [{}, {"kind": "A"}, {"error_code": "STOCKED"}])
@pytest.mark.parametrize("first", ["an hour ago", "a week ago, for an hour"])
async def test_only_that_time_is_read(harness: Harness, first: str, more: dict[str, str]) -> None:  # noqa: F811
    name = "sqlite" if isinstance(harness, SqliteHarness) else "postgres"
    await harness.stock(NUMBER, State.FAILED, kind="A")
    await harness.sql(SPREAD[name])
    await harness.sql("analyze")
    now = datetime.now(UTC)
    begin = now - timedelta(hours=1) if first == "an hour ago" else now - timedelta(days=7)
    which = FailureFilter(since=begin, until=begin + timedelta(hours=1), **more)
    assert 58 <= len(await harness.store.failed(which, limit=500)) <= 61
    assert 58 <= await harness.store.count_failed(which) <= 61
    order = " order by failed_seq desc limit 50"
    if name == "sqlite":
        sql = statements("redrive.stores.sqlite", "reads.sql")["failed_places"] + filled(SQLITE.failed(which)) + order
        plan = "\n".join(row[-1] for row in await harness.sql(f"explain query plan {sql}"))
        assert "failed_seq>? AND failed_seq<?" in plan and "B-TREE" not in plan, plan
        assert re.findall("SCAN (.*)", plan) == ["few", "few"], plan  # at most 500, found by their time
        return
    places = statements("redrive.stores.postgres", "statements.sql")["failed_places"]
    sql = places + filled(POSTGRES.failed(which)) + order
    plan = "\n".join(row[-1] for row in await harness.sql(f"explain (analyze, costs off, timing off) {sql}"))
    assert "Seq Scan" not in plan, plan
    read = [float(one) for one in re.findall(r"(?:rows=|Removed by Filter: )([0-9.]+)", plan)]
    assert max(read) <= 100, plan


@pytest.mark.parametrize("late", [0, 3])
async def test_after_an_outage_only_what_matches_is_read(harness: Harness, late: int) -> None:  # noqa: F811
    """All failed within a moment, a few minutes ago; of the last minute there are few, or none."""
    if not isinstance(harness, SqliteHarness):
        pytest.skip("PostgreSQL has statistics of times, by which it chooses")
    await harness.stock(NUMBER, State.FAILED, kind="A")
    last = "(select max(s.failed_seq) from redrive_task s)"
    ago = f"case when failed_seq > {last} - {late} then 20 else 300 end"
    await harness.sql(f"update redrive_task set failed_at = (unixepoch('now') - {ago}) * 1000000")
    which = FailureFilter(since=datetime.now(UTC) - timedelta(minutes=1))
    assert len(await harness.store.failed(which, limit=50, newest=True)) == late
    assert sum((await harness.store.count_causes(which, 50)).values()) == late
    text = filled(SQLITE.failed(which))
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 100

    with contextlib.closing(sqlite3.connect(harness.store.location.path)) as connection:
        connection.set_progress_handler(step, 100)
        sql = statements("redrive.stores.sqlite", "reads.sql")["failed_places"] + text
        assert len(connection.execute(sql + " order by failed_seq desc limit 50").fetchall()) == late
    assert steps < NUMBER / 10
