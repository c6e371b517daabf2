"""Audit rows about a batch are found by an index, however many others there are."""

from __future__ import annotations

import pytest

from redrive.kernel.audit import AuditFilter
from redrive.stores.postgres.reads import FILTERS as POSTGRES
from redrive.stores.sql import statements
from redrive.stores.sqlite.reads import FILTERS as SQLITE
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.conformance.test_member_plans import filled, plan
from tests.ops.conftest import harness  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio
WHICH = AuditFilter(target="batch:7")
_TARGET = "case when n % 9 = 0 then 'batch:' || (n / 9) end"
STOCK = {
    "sqlite": "with recursive g(n) as (select 1 union all select n + 1 from g where n < 9000)"
    f" insert into redrive_audit (at, actor, action, target) select n, 'ann', 'NOTE', {_TARGET} from g",
    "postgres": "insert into redrive.audit (at, actor, action, target)"
    f" select now(), 'ann', 'NOTE', {_TARGET} from generate_series(1, 9000) n",
}


async def test_rows_about_a_batch_are_found_by_its_name(harness: Harness) -> None:  # noqa: F811
    name = "sqlite" if isinstance(harness, SqliteHarness) else "postgres"
    await harness.sql(STOCK[name])
    await harness.sql("analyze" if name == "sqlite" else "analyze redrive.audit")
    assert len(await harness.store.audit(WHICH, limit=10)) == 1
    file, filters = ("reads.sql", SQLITE) if name == "sqlite" else ("statements.sql", POSTGRES)
    text = statements(f"redrive.stores.{name}", file)["audit_log"] + filled(filters.audit(WHICH))
    assert "audit_target" in await plan(harness, name, f"{text} order by id desc limit 50")
