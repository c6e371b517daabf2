"""Members of a join are found by its index, however many others there are, and whatever the state."""

from __future__ import annotations

import pytest

from redrive.ids import new_id
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.reads import Query
from redrive.kernel.task import HISTORY, State
from redrive.stores.filters import Where
from redrive.stores.postgres.reads import FILTERS as POSTGRES
from redrive.stores.sql import statements
from redrive.stores.sqlite.codec import encode
from redrive.stores.sqlite.reads import FILTERS as SQLITE
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.conftest import harness  # noqa: F401 - a fixture

pytestmark = pytest.mark.anyio
JOIN, OTHER = str(new_id()), str(new_id())
_WHOSE = f"case when n % 300 = 0 then '{JOIN}' else '{OTHER}' end"
_SQLITE = "with recursive g(n) as (select 1 union all select n + 1 from g where n < 9000)"
_ID = "printf('0197f0c2-8d1e-7c3a-9b1f-%012x', n)"
STOCK = {
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


def listing(name: str, state: State) -> str:
    """The statement of one state's part of a list, with its values in it."""
    query = Query((state,), join=JOIN, limit=20)
    file, filters = ("reads.sql", SQLITE) if name == "sqlite" else ("statements.sql", POSTGRES)
    where = filters.history(query) if state in HISTORY else filters.live(query)
    assert where is not None
    text = statements(f"redrive.stores.{name}", file)["find_history" if state in HISTORY else "find_live"]
    return text + filled(where)


def filled(where: Where) -> str:
    """What is asked for, with its values in it."""
    mark, text = where.dialect.mark, where.sql
    for number, value in reversed(list(enumerate(where.args, 1))):
        known = encode(value) if mark == "?" else value
        text = text.replace(f"{mark}{number}", str(known) if isinstance(known, int) else f"'{known}'")
    return text


async def plan(harness: Harness, name: str, text: str) -> str:  # noqa: F811
    how = "explain query plan" if name == "sqlite" else "explain (costs off)"
    return "\n".join(str(row[-1]) for row in await harness.sql(f"{how} {text}"))


async def stocked(harness: Harness) -> str:  # noqa: F811
    name = "sqlite" if isinstance(harness, SqliteHarness) else "postgres"
    for text in STOCK[name]:
        await harness.sql(text)
    await harness.sql("analyze")
    return name


async def test_each_state_has_its_place_in_an_index(harness: Harness) -> None:  # noqa: F811
    name = await stocked(harness)
    for state in (State.QUEUED, State.FAILED, State.COMPLETED):  # of others there are none, and any index will do
        text = await plan(harness, name, listing(name, state))
        # A partition's index is named by the server, after its columns.
        assert "_members" in text or "_join_id_state_id_idx" in text, text
        assert not any(word in text for word in ("Seq Scan", "SCAN redrive", "->  Sort", "TEMP B-TREE")), text


async def test_failures_come_in_their_order(harness: Harness) -> None:  # noqa: F811
    name = await stocked(harness)
    which = FailureFilter(join=JOIN)
    file = "reads.sql" if name == "sqlite" else "statements.sql"
    text = statements(f"redrive.stores.{name}", file)["failed_ids"]
    filters = SQLITE if name == "sqlite" else POSTGRES
    text += filled(filters.between(which, 100, None).add(" order by failed_seq limit {}", 20))
    found = await plan(harness, name, text)
    assert "failed_join" in found and "Sort" not in found and "TEMP B-TREE" not in found, found
