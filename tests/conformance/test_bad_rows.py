"""One bad row, put there past all checks, never stops the others: claims, ticks, recovery, operators, lists."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from redrive.kernel.commit import Commit, Target
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.feature import Feature
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed, HandedBack, Outcome
from redrive.kernel.ports.store import Query, Store
from redrive.kernel.reactions import Landed
from redrive.kernel.task import HISTORY, State
from redrive.ops import failures as ops
from redrive.ops.allowance import UNRESTRICTED
from redrive.ops.operations.retry import retry_matching
from redrive_kit.conformance.harness import LEASE, TERMINAL, Harness, failing, operator_move
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness

pytestmark = pytest.mark.anyio

# What is in the row, as SQL for each store.
POSTGRES = {
    "a group that no index holds": "task_group = (select string_agg(md5(n::text), '') from generate_series(1, 400) n)",
    "a kind that no index holds": "kind = (select string_agg(md5(n::text), '') from generate_series(1, 400) n)",
    "a kind that is no name": "kind = 'no '' name; at\nall'",
    "attempts used up": "attempt_count = 3",
    "more attempts than there may be": "attempt_count = 9",
    "attempts at the end of the numbers": "attempt_count = 2147483647, max_attempts = 2147483647",
    "a payload 300 levels deep": "payload = (repeat('[', 300) || repeat(']', 300))::jsonb",
    "a payload of 20 MB when it is read": "payload = (select jsonb_agg('1e131071'::jsonb)"
    " from generate_series(1, 160))",
    "a payload of 3 MB": "payload = (select jsonb_agg(md5(n::text)) from generate_series(1, 90000) n)",
    "a payload of 3 MB that is small on the disk": "payload = to_jsonb(repeat('x', 3000000))",
    "a number that nobody reads": """payload = '{"n": 1e5000}'""",
    "made at the end of time": "created_at = 'infinity'",
    "made in the year 20,000": "created_at = '20000-01-01', last_attempt_at = '20000-01-01'",
    "a timeout of 24 days": "timeout_ms = 2147483647",
}
SQLITE = {
    "a group that is too long": "task_group = hex(zeroblob(6000))",
    "a kind that is too long": "kind = hex(zeroblob(6000))",
    "a kind that is no name": "kind = 'no '' name; at' || char(10) || 'all'",
    "attempts used up": "attempt_count = 3",
    "more attempts than there may be": "attempt_count = 9",
    "attempts at the end of the numbers": "attempt_count = 9223372036854775807, max_attempts = 9223372036854775807",
    "a payload 300 levels deep": "payload = replace(hex(zeroblob(150)), '0', '[')"
    " || replace(hex(zeroblob(150)), '0', ']')",
    "a payload that is no JSON": "payload = 'not json'",
    "a payload of 3 MB": "payload = '\"' || hex(zeroblob(1500000)) || '\"'",
    "a number that nobody reads": "payload = '{\"n\": 1' || hex(zeroblob(2500)) || '}'",
    "a payload with half a character": "payload = cast(x'22eda08022' as text)",
    "a payload with a NUL": "payload = cast(x'2261006222' as text)",
    "a group with half a character": "task_group = cast(x'eda080' as text)",
    "a memo that is no JSON": "memo = '{'",
    "an id that is none": "id = 'no-id'",
    "an id in capitals": "id = upper(id)",
    "made at the end of the numbers": "created_at = 9223372036854775807",
    "a timeout of centuries": "timeout_ms = 9223372036854775807",
    "a priority beyond the numbers": "priority = 99999",
}
UNCHECKED = """
alter domain redrive.name drop constraint name_of_1_to_120_bytes;
alter domain redrive.label drop constraint label_of_1_to_1536_bytes;
alter domain redrive.payload drop constraint payload_check;
alter table redrive.task drop constraint task_attempts_in_bounds;
alter domain redrive.attempts drop constraint attempts_of_1_to_1000000;
alter domain redrive.timeout_ms drop constraint timeout_of_1_to_2000000000_ms;
"""
CHECKED = """
alter domain redrive.name add constraint name_of_1_to_120_bytes
  check (octet_length(value) between 1 and 120) not valid;
alter domain redrive.label add constraint label_of_1_to_1536_bytes
  check (octet_length(value) between 1 and 1536) not valid;
alter domain redrive.payload add constraint payload_check check (octet_length(value::text) <= 1048576
  and not jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")')
  or redrive.check_payload(value)) not valid;
alter table redrive.task add constraint task_attempts_in_bounds
  check (attempt_count between 0 and max_attempts) not valid;
alter domain redrive.attempts add constraint attempts_of_1_to_1000000
  check (value between 1 and 1000000) not valid;
alter domain redrive.timeout_ms add constraint timeout_of_1_to_2000000000_ms
  check (value between 1 and 2000000000) not valid;
"""
CASES = [
    *(("postgres", name, text) for name, text in POSTGRES.items()),
    *(("sqlite", name, text) for name, text in SQLITE.items()),
]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}: {case[1]}")
def case(request: pytest.FixtureRequest) -> tuple[str, str, str]:
    found: tuple[str, str, str] = request.param
    return found


@pytest.fixture
async def harness(case: tuple[str, str, str], request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    made: Harness
    if case[0] == "postgres":
        made = PostgresHarness(request.getfixturevalue("fresh_store_url"))
    else:
        made = SqliteHarness(tmp_path / "bad.db")
        await made.store.open()
    yield made
    await made.close()


async def spoil(harness: Harness, case: tuple[str, str, str], task_id: UUID) -> None:
    """Past all checks: dropped for the moment, as for rows that are older than the checks."""
    text = case[2]
    if isinstance(harness, SqliteHarness):
        with closing(sqlite3.connect(harness.path, timeout=10)) as connection, connection:
            connection.execute("pragma ignore_check_constraints = on")
            connection.execute(f"update redrive_task set {text} where id = '{task_id}'")
        return
    assert isinstance(harness, PostgresHarness)
    admin = await harness.connection()
    kind = await admin.fetchval("select kind::text from redrive.task where id = $1", task_id)
    await admin.execute(UNCHECKED)
    await admin.execute(f"update redrive.task set {text} where id = '{task_id}'")
    await admin.execute(CHECKED)
    renamed = await admin.fetchval("select kind::text from redrive.task where id = $1", task_id)
    state = await admin.fetchval("select state::text from redrive.task where id = $1", task_id)
    if renamed != kind:  # totals follow the rows
        for name, n in ((kind, -1), (renamed, 1)):
            await admin.execute(
                f"insert into redrive.total_delta (queue, kind, {state}) values ('default', $1, $2)", name, n
            )


async def pass_time(harness: Harness, seconds: float) -> None:
    """The harness of PostgreSQL moves rows into the past, which the checks would refuse."""
    if isinstance(harness, PostgresHarness):
        admin = await harness.connection()
        await admin.execute(UNCHECKED)
        await harness.advance(seconds)
        await admin.execute(CHECKED)
    else:
        await harness.advance(seconds)


async def drained(harness: Harness, outcome: Outcome) -> None:
    """Work until nothing is left, as a worker does: tick, claim, settle, recover."""
    for _ in range(12):
        if all(task.state in HISTORY or task.state is State.FAILED for task in (await states(harness)).values()):
            return
        await harness.tick(recover=0.0)
        await harness.recover()
        claimed = await harness.claim(20)
        landed = await harness.store.apply(Commit(transitions=[harness.decide(task, outcome) for task in claimed]))
        assert landed.lost <= {task.id for task in claimed}
        await pass_time(harness, LEASE + 30)


async def states(harness: Harness) -> dict[UUID, Any]:
    return {task.id: task for task in await harness.store.find(Query(limit=100))}


class TestBadRows:
    @pytest.mark.parametrize(
        "outcome",
        [
            pytest.param(Completed(), id="completed"),
            pytest.param(TERMINAL, id="failed", marks=pytest.mark.thorough),
            pytest.param(failing(), id="retried", marks=pytest.mark.thorough),
        ],
    )
    async def test_it_is_claimed_or_fails_alone(
        self, harness: Harness, case: tuple[str, str, str], outcome: Outcome
    ) -> None:
        before = await harness.enqueue_many(3)
        bad = await harness.enqueue()
        after = await harness.enqueue_many(3)
        await spoil(harness, case, bad)
        await drained(harness, outcome)
        found = await states(harness)
        final = State.COMPLETED if isinstance(outcome, Completed) else State.FAILED
        assert [found[task_id].state for task_id in (*before, *after)] == [final] * 6
        (rest,) = [task for task in found.values() if task.id not in (*before, *after)]
        assert rest.state in (State.FAILED, State.COMPLETED)
        if rest.state is State.FAILED and isinstance(outcome, Completed):
            assert rest.error_code == "TASK_ROW_INVALID"
            (letter,) = await harness.store.dead_letters(Query(limit=10))
            assert letter.error_code == "TASK_ROW_INVALID" and letter.task_id == rest.id
        if "3 MB" in case[1]:
            assert rest.state is State.FAILED and "over the limit" in str(rest.error_message)
        if isinstance(harness, PostgresHarness):
            await harness.store.upkeep("fold", {})

    async def test_a_delayed_one_does_not_stop_promotion(self, harness: Harness, case: tuple[str, str, str]) -> None:
        good = [await harness.enqueue(delay=5.0), await harness.enqueue(delay=6.0)]
        bad = await harness.enqueue(delay=5.5)
        await spoil(harness, case, bad)
        await pass_time(harness, 10)
        await drained(harness, Completed())
        found = await states(harness)
        assert [found[task_id].state for task_id in good] == [State.COMPLETED] * 2

    async def test_one_whose_lease_ran_out_does_not_stop_recovery(
        self, harness: Harness, case: tuple[str, str, str]
    ) -> None:
        good = await harness.enqueue_many(2, max_attempts=1)
        bad = await harness.enqueue()
        assert len(await harness.claim(5)) == 3
        await spoil(harness, case, bad)
        await pass_time(harness, LEASE + 1)
        assert set(good) <= await harness.recover()
        found = await states(harness)
        assert [found[task_id].state for task_id in good] == [State.FAILED] * 2

    async def test_one_of_a_held_group(self, harness: Harness, case: tuple[str, str, str]) -> None:
        await harness.hold(Target.GROUP, "g")
        good = await harness.enqueue_many(2, group="g")
        bad = await harness.enqueue(group="g")
        await spoil(harness, case, bad)
        assert len(await harness.claim(5)) <= 1
        await harness.hold(Target.GROUP, "g", on=False)
        await drained(harness, Completed())
        found = await states(harness)
        assert [found[task_id].state for task_id in good] == [State.COMPLETED] * 2

    async def test_operators_reach_the_others(self, harness: Harness, case: tuple[str, str, str]) -> None:
        """Retry, cancel, retry of what was cancelled: each of many, with one bad row among them."""
        ids = await harness.enqueue_many(4)
        for claimed in await harness.claim(4):
            await harness.settle(claimed, TERMINAL)
        if "index" in case[1]:
            pytest.skip("such a row cannot be failed: its index refuses it")
        await spoil(harness, case, ids[1])
        if case[1].startswith("an id"):
            ids = [ids[0], *ids[2:]]
        good = [ids[0], *ids[2:]] if not case[1].startswith("an id") else ids
        assert await ops.list_failed(harness.store)
        result = await retry_matching(harness.store, FailureFilter(ids=tuple(ids)), actor="ann", rule=UNRESTRICTED)
        assert set(good) <= set(result.retried)
        for event in (Event.CANCEL, Event.REDRIVE):
            moves = [operator_move(event, task_id, "ann", "because") for task_id in ids]
            applied = await harness.store.apply(Commit(transitions=moves))
            assert not applied.lost & set(good)
        found = await states(harness)
        assert [found[task_id].state for task_id in good] == [State.QUEUED] * len(good)


async def test_one_of_an_unknown_feature_stops_nobody(harness: Harness, case: tuple[str, str, str]) -> None:
    """Who does not know the feature passes it by: to fail it would have effects. Who does know it fails or runs it."""
    bad = await harness.enqueue(feature="ghosts")
    good = await harness.enqueue_many(3)
    await spoil(harness, case, bad)
    await worked_off(harness, harness.store)
    found = await states(harness)
    assert [found.pop(task_id).state for task_id in good] == [State.COMPLETED] * 3
    (left,) = found.values()
    # Running: its id is not one that can be settled by.
    assert left.state in (State.QUEUED, State.DELAYED, State.RUNNING) and "was removed" not in str(left.payload)
    await pass_time(harness, LEASE + 15)
    told: list[State] = []

    def react(_: object, landed: Landed) -> None:
        told.append(landed.state)

    knower = await harness.another(features=[Feature("ghosts", __name__, react)])
    await worked_off(harness, knower)
    found = await states(harness)
    (ended,) = (found[task_id] for task_id in found if task_id not in good)
    assert told[-1:] == [ended.state] and ended.state in (State.COMPLETED, State.FAILED)


async def worked_off(harness: Harness, store: Store) -> None:
    """Tick, claim and settle, as a worker does that hands back what it does not know."""
    for _ in range(3):
        await harness.tick(store=store)
        await harness.recover(store)
        for task in await harness.claim(10, store=store):
            known = task.feature is None or task.feature in store.features.reactions.names
            await harness.settle(task, Completed() if known else HandedBack(), store=store)
