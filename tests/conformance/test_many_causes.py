"""A hundred thousand causes: lists and statistics over them read what they show, not what there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.kernel.failure_filter import FailureFilter
from redrive.ops import causes, failures
from redrive_kit.conformance.harness import TERMINAL, Harness
from tests.conformance import harness_postgres
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness

pytestmark = pytest.mark.anyio
MANY = 100_000
# A hundred tasks are failed by every tenth of them; the others are quiet.
POSTGRES = f"""
insert into redrive.failure_group (fingerprint, n, code, reason, failure_type, message, kind, sample_task, first_seen,
  last_seen, failing)
select md5(i::text), 5, 'C' || i % 7, 'r', 'unknown', 'm', 'K' || i % 5, gen_random_uuid(), clock_timestamp(),
  clock_timestamp() - i * interval '1 s', case when i % 10 = 0 and i > 90000 then 100 else 0 end
from generate_series(1, {MANY}) i;
insert into redrive.failed_delta (kind, queue, task_group, error_code, error_reason, failure_type, dead_reason,
  fingerprint, n)
select 'K' || i % 5, 'default', 'g' || i % 3, 'C' || i % 7, 'r', 'unknown', 'non_retryable', md5(i::text), 100
from generate_series(10, {MANY}, 10) i where i > 90000;
"""
SQLITE = f"""
with recursive n(i) as (select 1 union all select i + 1 from n where i < {MANY})
insert into redrive_failure_group (fingerprint, n, code, reason, failure_type, message, kind, sample_task, first_seen,
  last_seen, failing)
select printf('%08x', i), 5, 'C' || (i % 7), 'r', 'unknown', 'm', 'K' || (i % 5),
  '00000000-0000-0000-0000-000000000000', 0,
  (strftime('%s') - i) * 1000000, case when i % 10 = 0 and i > 90000 then 100 else 0 end from n;
"""
SQLITE_TOTALS = (
    "insert into redrive_failed_total select kind, 'default', '', code, reason, failure_type, 'non_retryable',"
    " fingerprint, failing from redrive_failure_group where failing > 0",
    "insert into redrive_failed_sum select 'cause', fingerprint, n from redrive_failed_total",
    "insert into redrive_failed_sum select 'kind', kind, sum(n) from redrive_failed_total group by kind",
    "insert into redrive_failed_sum select 'total', '', sum(n) from redrive_failed_total",
)


@pytest.fixture(params=["sqlite", "postgres"])
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    made: Harness
    if request.param == "postgres":
        made = PostgresHarness(request.getfixturevalue("fresh_store_url"))
        admin = await made.connection()
        await admin.execute(POSTGRES)
        await made.store.upkeep("fold")
        await admin.execute("analyze")
        # Looked at inside of one transaction, to be counted there.
        monkeypatch.setattr(harness_postgres, "WORK", harness_postgres.WORK.replace("^(task|", "^(fail|record|task|"))
        monkeypatch.setattr(made.store.pool, "read", lambda work, snapshot=False: made.store.pool.run(work))
    else:
        made = SqliteHarness(tmp_path / "many.db")
        await made.store.open()
        for statement in (SQLITE, *SQLITE_TOTALS):
            await made.sql(statement)
    yield made
    await made.close()


async def test_lists_and_statistics_read_what_they_show(harness: Harness) -> None:
    """Rows and index entries visited; a look at everything would be 100,000 and more of them."""
    await harness.settle(await harness.running(), TERMINAL)
    (own,) = (await causes.list_causes(harness.store, limit=1, status="all", order="last")).causes
    await causes.annotate(harness.store, own.row.fingerprint, actor="ann", resolved=True)
    first = await causes.list_causes(harness.store, limit=40)
    some = first.causes[30].row.fingerprint
    assert (first.total, first.more, first.tasks) == (1001, 961, 100_001)
    asked = {
        "most failed": lambda: causes.list_causes(harness.store, limit=20),
        "latest": lambda: causes.list_causes(harness.store, limit=20, status="all", order="last"),
        "next": lambda: causes.list_causes(harness.store, limit=20, before=first.next_before),
        "open": lambda: causes.list_causes(harness.store, limit=20, status="open"),
        "quiet": lambda: causes.list_causes(harness.store, limit=20, status="quiet"),
        "muted": lambda: causes.list_causes(harness.store, limit=20, status="muted"),
        "resolved": lambda: causes.list_causes(harness.store, limit=20, status="resolved"),
        "reopened": lambda: causes.list_causes(harness.store, limit=20, status="reopened"),
        "by its beginning": lambda: causes.show(harness.store, some[:-1] if len(some) > 8 else some),
        "one": lambda: causes.show(harness.store, some),
        "statistics": lambda: failures.statistics(harness.store),
        "count": lambda: harness.store.count_failed(FailureFilter()),
        "count of a kind": lambda: harness.store.count_failed(FailureFilter(kind="K0")),
    }
    found = {}
    for name, ask in asked.items():
        async with harness.measure(harness.store) as cost:
            found[name] = await ask()
        # SQLite counts steps of its machine, about a hundred of them for each group that is shown.
        assert cost.rows < (20_000 if isinstance(harness, PostgresHarness) else 300_000), (name, cost.rows)
    assert len(found["open"].causes) == len(found["quiet"].causes) == 20 and len(found["resolved"].causes) == 1
    assert found["muted"].causes == found["reopened"].causes == []
    assert found["count"] == found["statistics"].total == 100_001
    assert found["count of a kind"] == found["statistics"].by_kind["K0"] == 100_000
    assert len(found["statistics"].by_fingerprint) == 100
