"""A chart reads the rows that it shows, however many other kinds have series."""

from __future__ import annotations

import pytest

from redrive.stores.sql import statements
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.conftest import harness  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio
STOCK = {
    "sqlite": "with recursive m(i) as (select 0 union all select i + 1 from m where i < 299),"
    " k(j) as (select 0 union all select j + 1 from k where j < 99)"
    " insert into redrive_series select 'minute', i * 60000000, 'q', 'K' || j, 1, 0, '{}' from m, k",
    "postgres": "insert into redrive.series select 'minute', to_timestamp(i * 60), 'q', 'K' || j, 1, 0, '{}'"
    " from generate_series(0, 299) i, generate_series(0, 99) j",
}


async def plan_of(harness: Harness, name: str, sql: str, args: tuple[str, ...]) -> str:  # noqa: F811
    sign = "?" if name == "sqlite" else "$"
    for number in range(len(args), 0, -1):
        sql = sql.replace(f"{sign}{number}", args[number - 1])
    how = "explain query plan" if name == "sqlite" else "explain (analyze, costs off)"
    return "\n".join(str(row[-1]) for row in await harness.sql(f"{how} {sql.rstrip(';').replace('= ? ', '= 0 ')}"))


@pytest.mark.parametrize("which", ["everything", "queue", "kind", "both"])
async def test_a_chart_reads_what_it_shows(harness: Harness, which: str) -> None:  # noqa: F811
    name = "sqlite" if isinstance(harness, SqliteHarness) else "postgres"
    await harness.sql(STOCK[name])
    await harness.sql("analyze")
    queue = "'q'" if which in ("queue", "both") else "null"
    kind = "'K7'" if which in ("kind", "both") else "null"
    since = "6000000000" if name == "sqlite" else "to_timestamp(6000)"
    file, key = ("series.sql", "rows") if name == "sqlite" else ("statements.sql", "series")
    text = await plan_of(
        harness, name, statements(f"redrive.stores.{name}", file)[key], ("'minute'", since, queue, kind)
    )
    assert "series_of" in text and "Seq Scan" not in text and "SCAN redrive_series" not in text, text
    if name == "postgres":
        rows = [
            int(line.partition("rows=")[2].split()[0].split(".")[0]) for line in text.splitlines() if "rows=" in line
        ]
        assert max(rows) <= 200, text
