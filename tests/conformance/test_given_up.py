"""What was given up, where there is very much of it: found by the dead letters that a filter names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.kernel.failure_filter import FailureFilter
from redrive.stores.sqlite import reads
from redrive_kit.conformance.failed import TestGivenUp as _TestGivenUp
from tests.conformance.harness_sqlite import SqliteHarness
from tests.conformance.test_plans import filled

pytestmark = pytest.mark.anyio
SERIES = "with recursive g(n) as (select 1 union all select n + 1 from g where n < 20000)"


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SqliteHarness]:
    monkeypatch.setattr(reads, "FEW_CANCELLED", 0)
    harness = SqliteHarness(tmp_path / "redrive.db")
    await harness.store.open()
    yield harness
    await harness.close()


class TestOfMany(_TestGivenUp):
    """The same answers as where it is little."""


async def test_it_walks_the_letters_that_are_meant(harness: SqliteHarness) -> None:
    """Neither all that was given up, nor history with what was completed; and in order, so that a page is a page."""
    await harness.sql(
        "insert into redrive_history (id, finished_at, created_at, state, attempt_count, max_attempts, replay_count,"
        f" priority, kind, queue) {SERIES} select 'h' || n, n, n, 'cancelled', 1, 5, 0, 0, 'A', 'default' from g"
    )
    await harness.sql("analyze")
    for index, which in {
        "fingerprint": FailureFilter(fingerprint="f"),
        "code": FailureFilter(error_code="c"),
        "kind": FailureFilter(kind="A"),
        "scope": FailureFilter(scope="s"),
        "reason": FailureFilter(dead_reason="r"),
    }.items():
        wanted = reads.FILTERS.cancelled(which)
        assert wanted is not None
        text = f"select h.id {reads.SQL['cancelled_of_many']}" + filled(wanted) + " order by d.seq limit 50"
        plan = [row[-1] for row in await harness.sql(f"explain query plan {text}")]
        assert any(f"SEARCH d USING INDEX redrive_dead_letter_{index}" in step for step in plan), plan
        assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan), plan


async def test_a_few_are_found_without_what_was_completed(harness: SqliteHarness) -> None:
    """Also by a store whose statistics are of another time."""
    sql = f"select count(*) {reads.SQL['cancelled']} and d.error_fingerprint = 'x'"
    plan = [row[-1] for row in await harness.sql(f"explain query plan {sql}")]
    assert any("SEARCH h USING INDEX redrive_history_cancelled" in step for step in plan), plan
