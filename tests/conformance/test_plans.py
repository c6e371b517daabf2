"""Lists find what they show by an index, however much else there is: plans of both stores."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from redrive.ids import new_id
from redrive.kernel.audit import AuditFilter
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.reads import Query
from redrive.kernel.task import HISTORY, State
from redrive.stores.filters import Filters, Where
from redrive.stores.postgres.reads import FILTERS as POSTGRES
from redrive.stores.sql import statements
from redrive.stores.sqlite.codec import encode
from redrive.stores.sqlite.reads import FILTERS as SQLITE
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.conftest import harness  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio
FILES = {"sqlite": "reads.sql", "postgres": "statements.sql"}
FILTERS: dict[str, Filters] = {"sqlite": SQLITE, "postgres": POSTGRES}


def store_of(harness: Harness) -> str:  # noqa: F811
    return "sqlite" if isinstance(harness, SqliteHarness) else "postgres"


def filled(where: Where) -> str:
    """What is asked for, with its values in it."""
    mark, text = where.dialect.mark, where.sql
    for number, value in reversed(list(enumerate(where.args, 1))):
        known = encode(value) if mark == "?" else value
        text = text.replace(f"{mark}{number}", str(known) if isinstance(known, int) else f"'{known}'")
    return text


async def plan(harness: Harness, text: str, *, run: bool = False) -> str:  # noqa: F811
    how = "explain (analyze, costs off, timing off)" if run else "explain (costs off)"
    how = how if store_of(harness) == "postgres" else "explain query plan"
    return "\n".join(str(row[-1]) for row in await harness.sql(f"{how} {text}"))


def rows_read(plan: str) -> float:
    """The most that a step of PostgreSQL's plan has read."""
    return max(float(one) for one in re.findall(r"(?:rows=|Removed by Filter: )([0-9.]+)", plan))


async def stock(harness: Harness, *texts: str) -> None:  # noqa: F811
    for text in (*texts, "analyze"):
        await harness.sql(text)


# -- members of a join ---------------------------------------------------------------------------------------------

JOIN, OTHER = str(new_id()), str(new_id())
_WHOSE = f"case when n % 300 = 0 then '{JOIN}' else '{OTHER}' end"
_SQLITE = "with recursive g(n) as (select 1 union all select n + 1 from g where n < 9000)"
_ID = "printf('0197f0c2-8d1e-7c3a-9b1f-%012x', n)"
MEMBERS = {
    "sqlite": [
        "insert into redrive_task"
        " (id, created_at, position, state, max_attempts, kind, queue, lane, failed_seq, join_id)"
        f" {_SQLITE} select {_ID}, 1, n, case when n % 3 = 0 then 'failed' else 'queued' end, 5, 'A', 'default', '', n,"
        f" {_WHOSE} from g",
        "insert into redrive_history (id, finished_at, created_at, state, attempt_count, max_attempts, replay_count,"
        f" priority, kind, queue, join_id) {_SQLITE} select {_ID}, n, n, 'completed', 1, 5, 0, 0, 'A', 'default',"
        f" {_WHOSE} from g",
    ],
    "postgres": [
        "insert into redrive.task"
        " (id, created_at, position, run_at, state, max_attempts, kind, queue, lane, failed_seq, join_id)"
        " select gen_random_uuid(), now(), n, now(), case when n % 3 = 0 then 'failed' else 'queued' end"
        f"::redrive.state, 5, 'A', 'default', '', n, ({_WHOSE})::uuid from generate_series(1, 9000) n",
        "insert into redrive.history (id, finished_at, created_at, state, attempt_count, max_attempts, replay_count,"
        " priority, kind, queue, join_id) select gen_random_uuid(), now(), now(), 'completed', 1, 5, 0, 0, 'A',"
        f" 'default', ({_WHOSE})::uuid from generate_series(1, 9000) n",
    ],
}


async def test_each_state_of_members_has_its_place_in_an_index(harness: Harness) -> None:  # noqa: F811
    name = store_of(harness)
    await stock(harness, *MEMBERS[name])
    for state in (State.QUEUED, State.FAILED, State.COMPLETED):  # of others there are none, and any index will do
        query, finished = Query((state,), join=JOIN, limit=20), state in HISTORY
        where = FILTERS[name].history(query) if finished else FILTERS[name].live(query)
        assert where is not None
        head = statements(f"redrive.stores.{name}", FILES[name])["find_history" if finished else "find_live"]
        text = await plan(harness, head + filled(where))
        # A partition's index is named by the server, after its columns.
        assert "_members" in text or "_join_id_state_id_idx" in text, text
        assert not any(word in text for word in ("Seq Scan", "SCAN redrive", "->  Sort", "TEMP B-TREE")), text
    where = FILTERS[name].between(FailureFilter(join=JOIN), 100, None).add(" order by failed_seq limit {}", 20)
    text = await plan(harness, statements(f"redrive.stores.{name}", FILES[name])["failed_ids"] + filled(where))
    assert "failed_join" in text and "Sort" not in text and "TEMP B-TREE" not in text, text


# -- audit rows about a batch --------------------------------------------------------------------------------------

ABOUT_A_BATCH = AuditFilter(target="batch:7")
_TARGET = "case when n % 9 = 0 then 'batch:' || (n / 9) end"
AUDIT = {
    "sqlite": "with recursive g(n) as (select 1 union all select n + 1 from g where n < 9000)"
    f" insert into redrive_audit (at, actor, action, target) select n, 'ann', 'NOTE', {_TARGET} from g",
    "postgres": "insert into redrive.audit (at, actor, action, target)"
    f" select now(), 'ann', 'NOTE', {_TARGET} from generate_series(1, 9000) n",
}


async def test_audit_rows_about_a_batch_are_found_by_its_name(harness: Harness) -> None:  # noqa: F811
    name = store_of(harness)
    await stock(harness, AUDIT[name])
    assert len(await harness.store.audit(ABOUT_A_BATCH, limit=10)) == 1
    text = statements(f"redrive.stores.{name}", FILES[name])["audit_log"] + filled(FILTERS[name].audit(ABOUT_A_BATCH))
    assert "audit_target" in await plan(harness, f"{text} order by id desc limit 50")


# -- series --------------------------------------------------------------------------------------------------------

SERIES = {
    "sqlite": "with recursive m(i) as (select 0 union all select i + 1 from m where i < 299),"
    " k(j) as (select 0 union all select j + 1 from k where j < 99)"
    " insert into redrive_series select 'minute', i * 60000000, 'q', 'K' || j, 1, 0, '{}' from m, k",
    "postgres": "insert into redrive.series select 'minute', to_timestamp(i * 60), 'q', 'K' || j, 1, 0, '{}'"
    " from generate_series(0, 299) i, generate_series(0, 99) j",
}


async def test_a_chart_reads_what_it_shows(harness: Harness) -> None:  # noqa: F811
    name = store_of(harness)
    await stock(harness, SERIES[name])
    file, key = ("series.sql", "rows") if name == "sqlite" else ("statements.sql", "series")
    since, sign = ("6000000000", "?") if name == "sqlite" else ("to_timestamp(6000)", "$")
    for queue, kind in (("null", "null"), ("'q'", "null"), ("null", "'K7'"), ("'q'", "'K7'")):
        text = statements(f"redrive.stores.{name}", file)[key]
        for number, value in ((4, kind), (3, queue), (2, since), (1, "'minute'")):
            text = text.replace(f"{sign}{number}", value)
        found = await plan(harness, text.rstrip(";").replace("= ? ", "= 0 "), run=True)
        assert "series_of" in found and "Seq Scan" not in found and "SCAN redrive_series" not in found, found
        assert name == "sqlite" or rows_read(found) <= 200, found


# -- by when they failed -------------------------------------------------------------------------------------------

# One a minute, the last one now.
SPREAD = {
    "sqlite": "update redrive_task set failed_at = (unixepoch('now')"
    " - (select max(s.failed_seq) from redrive_task s) * 60 + failed_seq * 60) * 1000000",
    "postgres": "update redrive.task t set failed_at = now()"
    " - (m.last - t.failed_seq) * interval '1 minute' from (select max(failed_seq) as last from redrive.task) m",
}
NUMBER = 20_000


async def test_only_the_time_of_failures_that_is_asked_for_is_read(harness: Harness) -> None:  # noqa: F811
    """What lies before and behind is not read, however much it is and whatever else is asked for."""
    name = store_of(harness)
    await harness.stock(NUMBER, State.FAILED, kind="A")
    await stock(harness, SPREAD[name])
    places = statements(f"redrive.stores.{name}", FILES[name])["failed_places"]
    now = datetime.now(UTC)
    filters: list[dict[str, str]] = [{}, {"kind": "A"}, {"error_code": "STOCKED"}]
    for begin, more in ((now - ago, more) for ago in (timedelta(hours=1), timedelta(days=7)) for more in filters):
        which = FailureFilter(since=begin, until=begin + timedelta(hours=1), **more)
        assert 58 <= len(await harness.store.failed(which, limit=500)) <= 61, which
        assert 58 <= await harness.store.count_failed(which) <= 61, which
        sql = places + filled(FILTERS[name].failed(which)) + " order by failed_seq desc limit 50"
        text = await plan(harness, sql, run=True)
        if name == "sqlite":
            assert "failed_seq>? AND failed_seq<?" in text and "B-TREE" not in text, text
            assert re.findall("SCAN (.*)", text) == ["few", "few"], text  # at most 500, found by their time
        else:
            assert "Seq Scan" not in text and rows_read(text) <= 100, text


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
