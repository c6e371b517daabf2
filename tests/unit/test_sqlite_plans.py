"""What SQLite plans for the store's own statements when it has statistics: never to read a large table whole."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.kernel.ports.store import Query
from redrive.kernel.task import State
from redrive.stores import make_store
from redrive.stores.sql import statements
from redrive.stores.sqlite.claim import CLAIM_OPEN_ROWS, CLAIM_PICKED_ROWS
from redrive.stores.sqlite.reads import FILTERS

LARGE = r"redrive_(task|history|attempt|dead_letter|audit|idempotency_key)"
SERIES = "with recursive g(n) as (select 0 union all select n + 1 from g where n < 20000)"
# Parts of a statement; one that reads all that run, twice a minute; and one that reads all keys, for an erasure of
# tasks of which only a dead letter is left: an index for it would be paid with every key.
LEFT_OUT = {"rows", "open", "picked", "count_running", "erase_gone_keys"}


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[sqlite3.Connection]:
    """Thousands of rows that are full, and statistics that say so: looking anywhere seems to find something soon."""
    store = make_store(f"sqlite:///{tmp_path}/tasks.db")
    await store.migrations.up()
    await store.close()
    found = sqlite3.connect(tmp_path / "tasks.db")
    for state, lane, count in (("queued", "FULL", 20_000), ("delayed", "", 9), ("failed", "", 9), ("running", "", 9)):
        found.execute(
            "insert into redrive_task (id, created_at, position, state, max_attempts, kind, queue, lane,"
            f" next_attempt_at, lease_token, lease_expires_at) {SERIES}"
            f" select '{state}' || n, 1, n, '{state}', 5, 'FULL', 'default',"
            f" '{lane}', n, case when '{state}' = 'running' then 'x' end, n from g limit {count}"
        )
    found.execute(
        "insert into redrive_history (id, finished_at, created_at, state, attempt_count, max_attempts, replay_count,"
        f" priority, kind, queue) {SERIES} select 'h' || n, n, n, 'completed', 1, 5, 0, 0, 'FULL', 'default' from g"
    )
    found.execute(
        "insert into redrive_attempt (task_id, at, attempt, replay, code, reason, failure_type, message, fingerprint)"
        f" {SERIES} select 'h' || n, n, 1, 0, 'a', 'b', 'c', 'd', 'e' from g"
    )
    found.commit()
    found.execute("analyze")
    yield found
    found.close()


def bindings(sql: str) -> int:
    """How many values it takes: each ?, or those up to the largest ?N."""
    numbered = re.findall(r"\?(\d+)", sql)
    return max(map(int, numbered)) if numbered else sql.count("?")


async def test_no_statement_of_the_hot_path_reads_a_table_from_end_to_end(connection: sqlite3.Connection) -> None:
    named = {"open": CLAIM_OPEN_ROWS, "picked": CLAIM_PICKED_ROWS}
    for file in ("claim.sql", "settle.sql", "tick.sql", "prune.sql", "erase.sql", "session.sql", "apply.sql"):
        found = statements("redrive.stores.sqlite", file)
        named |= {f"{file}:{name}": sql for name, sql in found.items() if name not in LEFT_OUT}
    assert len(named) > 40
    broken = {name: bad for name, sql in named.items() if (bad := scans(connection, sql))}
    assert broken == {}
    # The test itself can fail.
    assert scans(connection, "select 1 from redrive_task c where c.payload = ?")


def scans(connection: sqlite3.Connection, sql: str) -> list[str]:
    """Steps that read a large table whole. Statements call it by name or by a letter; a letter behind a bracket is a
    subquery's."""
    text = " ".join(sql.split())
    letters = {letter for _, letter in re.findall(rf"{LARGE} ([a-z])\b", text)}
    names = "|".join([LARGE, *sorted(letter for letter in letters if f") {letter}" not in text)])
    plan = [row[3] for row in connection.execute(f"explain query plan {sql}", [None] * bindings(sql))]
    return [step for step in plan if re.match(rf"SCAN ({names})\b", step) and "VIRTUAL" not in step]


async def test_who_holds_leases_is_found_by_the_leases(connection: sqlite3.Connection) -> None:
    sql = statements("redrive.stores.sqlite", "reads.sql")["leases"]
    plan = [row[3] for row in connection.execute(f"explain query plan {sql}")]
    assert any("t USING INDEX redrive_task_lease" in step for step in plan), plan


@pytest.mark.parametrize("state", [State.FAILED])
async def test_few_tasks_of_a_state_are_found_by_its_index(connection: sqlite3.Connection, state: State) -> None:
    """With very many others: by their ids all of those would be walked through."""
    wanted = FILTERS.live(Query((state,), limit=50), order="+id")
    assert wanted is not None
    sql = statements("redrive.stores.sqlite", "reads.sql")["find_brief"] + wanted.sql
    plan = [row[3] for row in connection.execute(f"explain query plan {sql}", wanted.args)]
    assert re.match(r"(SCAN|SEARCH) redrive_task USING INDEX redrive_task_\w+", plan[0]), plan


async def test_what_waits_too_long_is_counted_without_reading_all(connection: sqlite3.Connection) -> None:
    sql = statements("redrive.stores.sqlite", "figures.sql")["overdue"]
    args = [10**15, '[["default", 30.0]]', "[]", 10_000]
    plan = "\n".join(row[3] for row in connection.execute(f"explain query plan {sql}", args))
    assert "AUTOMATIC" not in plan and not re.search(r"SCAN t\b", plan), plan
