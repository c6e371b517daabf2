"""What doctor says about work that does not move, and about the store itself."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import StoreUnavailable
from redrive.kernel.commit import Target
from redrive.kernel.diagnosis import Diagnosis, Level
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action, Canary
from redrive.kernel.outcome import Fail
from redrive.kernel.ports.store import Query
from redrive.kernel.task import State
from redrive.ops import actions, growth, inspect
from redrive.ops.allowance import UNRESTRICTED, Rule
from redrive.ops.doctor import MOST_HOLDS, examine, worst
from redrive.ops.operations import lifecycle
from redrive.ops.operations.drive import step
from redrive.ops.operations.lifecycle import How
from redrive.ops.why import lost_by
from redrive.stores.postgres import diagnose
from redrive.stores.postgres.store import PostgresStore
from redrive_kit.conformance.harness import LEASE, Harness
from tests.conformance.harness_postgres import PostgresHarness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.making import OTHER, fail, held
from tests.ops.test_operator import operator


async def codes(harness: Harness, queue: str | None = None) -> dict[str, Level]:
    return {finding.code: finding.level for finding in await examine(harness.store, queue)}


async def said(harness: Harness, code: str) -> str:
    return next(finding.text for finding in await examine(harness.store) if finding.code == code)


async def test_nothing_is_wrong(harness: Harness) -> None:
    await harness.tick("w1")
    found = await examine(harness.store)
    assert worst(found) is Level.OK, found


async def test_a_file_that_was_moved_away_is_missed(tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path / "redrive.db")
    await harness.store.migrations.up()
    assert await codes(harness)
    (tmp_path / "redrive.db").rename(tmp_path / "moved.db")
    with pytest.raises(StoreUnavailable, match=r"redrive\.db is not there any more"):
        await examine(harness.store)
    await harness.close()


async def test_nobody_serves_the_queue(harness: Harness) -> None:
    assert await codes(harness) == {"no_worker": Level.WARNING}
    await harness.enqueue(queue="reports")
    await harness.tick("w1")
    assert (await codes(harness))["no_worker"] is Level.CRITICAL
    assert "no_worker" not in await codes(harness, "default")
    await harness.advance(60)
    assert (await codes(harness))["silent_worker"] is Level.WARNING


async def test_work_that_is_due_in_months_needs_no_worker(harness: Harness) -> None:
    await harness.tick("w1")
    await harness.enqueue(queue="reports", delay=90 * 86_400)
    assert "no_worker" not in await codes(harness)


async def test_a_backlog_is_as_old_as_its_wait(harness: Harness) -> None:
    (failed,) = await fail(harness)
    await harness.advance(3 * 86_400)
    await actions.retry(harness.store, [failed], actor="ann")
    await harness.tick("w1")
    assert "backlog" not in await codes(harness), "it waits since a moment ago"
    await harness.advance(600)
    await harness.tick("w1")
    assert (await codes(harness))["backlog"] is Level.WARNING
    await harness.hold(Target.QUEUE, "default")
    found = await codes(harness)
    assert "backlog" not in found and found["paused"] is Level.NOTE


async def test_what_follows_from_a_queue_without_a_worker_is_said_with_it(harness: Harness) -> None:
    await harness.tick("w1")
    await harness.enqueue(queue="reports")
    await harness.enqueue("B")
    await harness.advance(3600)
    await harness.tick("w1")
    found = [one for one in await examine(harness.store) if one.about == ("queue", "reports")]
    assert [(one.level, one.code) for one in found] == [(Level.CRITICAL, "no_worker")]
    assert found[0].text == "no live worker serves queue reports, with 1 task waiting; so also backlog"
    assert (await codes(harness))["backlog"] is Level.WARNING, "of the other queue"


async def test_a_backlog_of_a_paused_kind_names_who_paused_it(harness: Harness) -> None:
    await harness.enqueue_many(3, "SHIP")
    await actions.hold(harness.store, "kind", "SHIP", actor="carol", on=True)
    await harness.advance(600)
    await harness.tick("w1")
    (found,) = [one for one in await examine(harness.store) if "backs up" in one.text]
    assert (found.code, found.about) == ("held_backlog", ("kind", "SHIP"))
    assert found.text.endswith("3 wait: all 3 of kind SHIP, paused by carol 10 min ago")
    assert found.fix == "redrive resume --kind SHIP"
    queue = next(one for one in (await operator(harness).control.queues()).items if one.name == "default")
    assert queue.held and queue.all_held
    await harness.enqueue("B")
    assert (await said(harness, "held_backlog")).endswith("4 wait: 3 of kind SHIP, paused by carol 10 min ago")
    queue = next(one for one in (await operator(harness).control.queues()).items if one.name == "default")
    assert queue.held and not queue.all_held


async def test_an_old_task_in_a_lane_of_its_own_is_seen(harness: Harness) -> None:
    await harness.limit("A", concurrency=1)
    await harness.enqueue("A")
    await harness.advance(86_400)
    await harness.enqueue("B")
    await harness.tick("w1")
    assert "backlog" in await codes(harness)


async def test_leases_that_nobody_recovers(harness: Harness) -> None:
    await harness.running()
    await harness.advance(120)
    await harness.tick("w1")
    assert (await codes(harness))["stale_leases"] is Level.CRITICAL
    assert re.fullmatch(r"1 lease ran out 6\d s ago, and nobody recovers it", await said(harness, "stale_leases"))
    await harness.running()
    await harness.advance(120)
    assert (await said(harness, "stale_leases")).startswith("2 leases ran out, the first ")


async def test_what_runs_only_on_paper(harness: Harness) -> None:
    """As soon as a beat is overdue, and not only when the lease ends."""
    await harness.tick("w1")
    first = await held(harness)
    await held(harness)
    await harness.tick("w1")
    assert "lost_tasks" not in await codes(harness)
    await harness.advance(12)
    await harness.tick("w2")
    (found,) = [one for one in await examine(harness.store) if one.code == "lost_tasks"]
    assert found.level is Level.WARNING and "are held by worker w1, which has been silent for 1" in found.text
    assert "they come back when their leases end, in 10 min at the latest" in found.text
    stats = await inspect.stats(harness.store)
    assert [(one.worker.id, one.tasks, one.restarted) for one in stats.lost()] == [("w1", 2, False)]
    assert {row.id: stats.held_by(row) for row in stats.overview.workers} == {"w1": 2, "w2": 0}
    result = await operator(harness).tasks.cancel([first.id])
    assert result.requested == [first.id] and result.notes[first.id].endswith("then it is cancelled")
    await harness.tick("w1")
    assert (await operator(harness).tasks.cancel([first.id])).notes[first.id].startswith("already asked to stop by ann")
    await harness.advance(900)
    await harness.tick("w2")
    (found,) = [one for one in await examine(harness.store) if one.code == "lost_tasks"]
    assert "their leases ended 5 min ago, and they come back as soon as a live worker looks" in found.text


async def test_every_face_calls_a_worker_the_same(harness: Harness) -> None:
    own = operator(harness)
    seen = []
    for _ in range(5):
        await harness.tick("w1")
        await harness.enqueue(queue="default")
        await harness.advance(len(seen) * 8)
        (worker,) = await own.workers.list()
        served = [queue.workers for queue in (await own.control.queues()).items if queue.name == "default"]
        found = await codes(harness)
        assert worker.alive == (served == [1]) == ("no_worker" not in found) == ("workers" in found)
        assert worker.alive == await own.operations.has_driver() == ("silent_worker" not in found)
        whole = await own.overview.show()
        assert (len(whole.workers), whole.workers_gone) == ((0, 1) if worker.standing.value == "gone" else (1, 0))
        seen.append(worker.standing.value)
    assert seen == ["alive", "alive", "silent", "silent", "gone"]


async def test_who_ended_a_task_that_was_asked_to_stop(harness: Harness) -> None:
    own, bob = operator(harness), operator(harness, name="bob")
    await harness.tick("w1")
    task = await held(harness)
    assert (await own.tasks.cancel([task.id], "not wanted")).notes == {}
    again = await bob.tasks.cancel([task.id])
    assert again.requested == [task.id] and again.notes[task.id].startswith("already asked to stop by ann at 20")
    assert [row.actor for row in await harness.audit(action="TASK_CANCEL_REQUEST")] == ["ann"]
    await harness.advance(700)
    await harness.recover()
    story = await own.tasks.show(task.id)
    assert story.timeline.task.state is State.CANCELLED
    assert inspect.ended_by(story.timeline) == "as ann asked (not wanted); it was held by w1"
    assert inspect.cancelled_because(story.timeline) == "not wanted"


async def test_a_list_marks_what_nobody_works_on(harness: Harness) -> None:
    own = operator(harness)
    await harness.tick("w1")
    task = await held(harness)
    for seconds, told in ((0, None), (12, "silent for 1"), (900, "its lease ended 5 min ago")):
        await harness.advance(seconds)
        page = await own.tasks.list(Query(limit=10))
        around = await own.tasks.surroundings(page.tasks)
        assert around is not None and [one.id for one in page.tasks] == [task.id]
        found = lost_by(page.tasks[0], around)
        assert found is None if told is None else found is not None and found.startswith(told)
    assert await own.tasks.surroundings([]) is None


async def test_failures_quota_approvals_and_operations(harness: Harness) -> None:
    await harness.tick("w1")
    await fail(harness, 2)
    await harness.limit("A", concurrency=1)
    await harness.enqueue_many(2)
    await harness.claim_one()
    await lifecycle.begin(harness.store, Action.RETRY, FailureFilter(), actor="ann", rule=Rule(0))
    begun, _ = await lifecycle.begin(
        harness.store, Action.RETRY, FailureFilter(kind="A"), actor="ann", rule=UNRESTRICTED, how=How(canary=Canary(1))
    )
    assert {"failures", "quota", "approval", "operation"} <= set(await codes(harness))
    await step(harness.store, begun.id, "w1")
    await harness.advance(600)
    await harness.tick("w1")
    (stuck,) = [f for f in await examine(harness.store) if f.code == "operation"]
    assert stuck.level is Level.WARNING and stuck.fix is not None and "canaries" in stuck.fix


async def test_the_cause_by_which_most_are_failed_comes_first(harness: Harness) -> None:
    await fail(harness, 3, OTHER, "IMPORT", queue="imports")
    await fail(harness, 1, OTHER, "CHECK")
    await fail(harness, 2)
    first, second = [one for one in await examine(harness.store) if one.code == "failures"]
    assert first.text.startswith("IMPORT and 1 other kind of queue imports and 1 other: 4 tasks failed (67% of all) by")
    assert second.text.startswith("A of queue default: 2 tasks failed (33% of all) by ") and first.level is second.level
    assert first.about is not None
    await operator(harness).causes.annotate(first.about[1], note="mine", owner="bea")
    (alone,) = [one for one in await examine(harness.store, "imports") if one.code == "failures"]
    assert alone.text.startswith("IMPORT of queue imports: 3 tasks failed by ")
    assert alone.full.endswith(" ago [owner: bea, note: mine]: no such shot")
    await operator(harness).causes.annotate(first.about[1], resolved=True)
    levels = [(one.about, one.level) for one in await examine(harness.store) if one.code == "failures"]
    assert levels == [(second.about, Level.WARNING), (first.about, Level.NOTE)]


async def test_the_largest_causes_are_named_however_many_there_are(harness: Harness) -> None:
    await fail(harness, 30, kind="BIG")
    await fail(harness, 5, OTHER, "SOME")
    for n in range(60):  # each of them seen later than those
        await fail(harness, 1 + n % 2, Fail(f"CAUSE_{n}", "x"))
    text = [one.text for one in await examine(harness.store) if one.code == "failures"]
    assert text[0].startswith("BIG of queue default: 30 tasks failed (24% of all) by ")
    assert text[1].startswith("SOME of queue default: 5 tasks failed (4% of all) by ")
    assert "CAUSE_59" in " ".join(text[2:-1])  # what failed last
    assert text[-1] == "82 tasks failed (66% of all) by 56 other causes"


async def test_a_fix_can_be_pasted_into_a_shell(harness: Harness) -> None:
    await harness.tick("w1")
    await harness.hold(Target.GROUP, "x; touch /tmp/pwned #")
    (found,) = [f for f in await examine(harness.store) if f.code == "paused"]
    assert found.fix == "redrive resume --group 'x; touch /tmp/pwned #'"


async def test_of_many_pauses_the_latest_are_named(harness: Harness) -> None:
    await harness.tick("w1")
    for n in range(MOST_HOLDS + 3):
        await harness.hold(Target.GROUP, f"g{n:02}")
    found = [one for one in await examine(harness.store) if one.code == "paused"]
    assert len(found) == MOST_HOLDS + 1
    assert (found[-1].text, found[-1].fix) == ("3 more are paused", "redrive stats")


async def test_all_indexes_that_are_looked_for_exist(harness: Harness) -> None:
    await harness.tick("w1")
    assert "missing_index" not in await codes(harness)


async def test_an_index_is_missing(tmp_path: Path, store_url: str) -> None:
    for made, name in (
        (SqliteHarness(tmp_path / "redrive.db"), "redrive_task_lease"),
        (PostgresHarness(store_url), "redrive.task_lease"),
    ):
        await made.store.open()
        await made.sql(f"drop index {name}")
        assert (await codes(made))["missing_index"] is Level.CRITICAL
        await made.close()


async def test_a_long_transaction(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "LONG_TRANSACTION", timedelta(seconds=-1))
    harness = PostgresHarness(store_url)
    other = await harness.another()
    async with other.pool.transaction(isolation="repeatable_read") as held:  # type: ignore[attr-defined]
        await held.fetch("select 1 from redrive.task")
        found = [f for f in (await harness.store.diagnose()).findings if f.code == "long_transaction"]
    assert found and "pg_terminate_backend" in (found[0].fix or "")
    await harness.close()


class TestTrends:
    """Figures that workers write down, and what doctor makes of them."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(growth, "MANY_DEAD_ROWS", 10)
        monkeypatch.setattr(growth, "LARGE_STORE_BYTES", 1)

    async def path(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch, *values: dict[str, int]
    ) -> dict[str, Level]:
        """One sample every ten minutes, the last one now."""
        look = type(harness.store).diagnose
        for nth, value in enumerate(values):

            async def with_vitals(store: Any, value: dict[str, int] = value, **how: Any) -> Diagnosis:
                return replace(await look(store, **how), vitals=value)

            monkeypatch.setattr(type(harness.store), "diagnose", with_vitals)
            if nth < len(values) - 1:
                await growth.write_sample(harness.store)
                await harness.advance(600)
        await harness.tick("w1")
        return await codes(harness)

    @pytest.mark.parametrize(
        ("path", "told"),
        [
            ([5, 8, 15, 30], True),
            ([5, 8, 15, 9, 30], False),  # vacuum was there
            ([5, 6, 7, 8], False),  # few
            ([20, 22, 25, 30], False),  # slowly
            ([5, 30], False),  # one sample says nothing yet
        ],
    )
    async def test_dead_rows(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch, path: list[int], told: bool
    ) -> None:
        found = await self.path(harness, monkeypatch, *({"dead:task": n} for n in path))
        assert ("dead_rows_rise" in found) is told

    async def test_size(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        found = await self.path(harness, monkeypatch, *({"size": n} for n in (10, 11, 12, 16)))
        assert found["size"] is Level.NOTE

    async def test_the_store_says_them(self, harness: Harness) -> None:
        await harness.enqueue()
        found = (await harness.store.diagnose(brief=True)).vitals
        assert found["size"] > 10_000
        if isinstance(harness, PostgresHarness):
            assert any(name.startswith("dead:") for name in found)
        await growth.write_sample(harness.store)
        [record] = await harness.store.records(growth.COLLECTION)
        assert record.body["values"]["size"] > 10_000


async def test_tasks_of_a_feature_that_nobody_knows(harness: Harness) -> None:
    async def unknown() -> list[str]:
        return [
            found.text.partition(",")[0] for found in await examine(harness.store) if found.code == "unknown_feature"
        ]

    await harness.enqueue_many(3, feature="ghosts")
    await harness.enqueue(feature="known")
    await harness.running(feature="gone", queue="other")
    await harness.tick("w1", **{"recover:known": 5.0})
    assert await unknown() == ["3 tasks belong to feature ghosts", "1 task belongs to feature gone"]
    async with harness.measure(harness.store) as cost:
        if isinstance(harness.store, PostgresStore):  # of five rows a planner reads all, once it knows how few they are
            async with harness.store.pool.connection() as connection:
                await connection.execute("analyze redrive.task")
                await connection.execute("set local enable_seqscan = off; discard plans")  # kept ones ask no setting
        await harness.store.diagnose()
    assert cost.scans == []
    await harness.advance(120)
    assert len(await unknown()) == 3


async def test_a_task_that_kills_its_workers_is_named(harness: Harness) -> None:
    task_id = await harness.enqueue("KILLER", max_attempts=10)
    for _ in range(3):
        await harness.beat("w1")
        await harness.claim_one()
        await harness.advance(LEASE + 1)
        await harness.recover()
        await harness.advance(60)
        await harness.tick()
    found = next(finding for finding in await examine(harness.store) if finding.code == "poison")
    assert found.level is Level.CRITICAL
    assert found.text.startswith("KILLER of queue default: 1 task failed as worker_lost"), found.text
    assert "3 workers were lost while they ran it" in (found.quoted or "")
    assert (await harness.task(task_id)).error_reason == "worker_lost"
