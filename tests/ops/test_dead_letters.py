"""Dead letters: counted as records, and retried by filter whether their task is failed or was given up."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from redrive.kernel.circuit import SetCircuit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action, Status
from redrive.kernel.outcome import Completed
from redrive.kernel.task import State
from redrive.ops.access import Role
from redrive.ops.operations import plans
from redrive.ops.operations.drive import step
from redrive_kit.conformance.harness import Harness
from tests.conformance.harness_sqlite import SqliteHarness
from tests.ops.making import OTHER, fail, run
from tests.ops.test_operator import operator

A = FailureFilter(kind="A")


async def test_they_are_counted_as_records_and_leave_the_total_when_removed(harness: Harness) -> None:
    own = operator(harness)
    [task_id] = await fail(harness)
    await own.tasks.retry(task_id)
    await run(harness, OTHER)
    await own.tasks.retry(task_id)
    await run(harness)
    await fail(harness, 2, kind="B")
    stats = await own.health.stats()
    assert stats.dead_letters() == {"A": 2, "B": 2} and stats.totals()["failed"] == 2
    assert {kind.name: kind.dead_letters for kind in (await own.control.kinds()).items}["A"] == 2
    table = "redrive_dead_letter" if isinstance(harness, SqliteHarness) else "redrive.dead_letter"
    await harness.sql(f"delete from {table} where kind = 'A'")
    for _ in range(2):
        assert (await own.health.stats()).dead_letters() == {"B": 2}
        await harness.store.upkeep("fold")


@pytest.mark.parametrize("bind", [True, False])
async def test_a_preview_by_id_shows_what_a_retry_by_id_reaches(harness: Harness, bind: bool) -> None:
    own = operator(harness)
    failed = await fail(harness, 2)
    never_failed = await harness.enqueue_many(2, "A")
    await own.tasks.cancel(never_failed)  # no dead letter
    waiting = await harness.enqueue_many(1, "A")
    which = FailureFilter(ids=(*failed, *never_failed, *waiting))
    seen = await own.failures.preview(which, bind=bind)
    told = await own.failures.retry_matching(which, dry_run=True)
    assert seen.total == 4 and set(seen.ids) == set(told.would_retry) == {*failed, *never_failed}
    assert {task.id for task in seen.tasks} == set(seen.ids)
    assert seen.skipped == told.skipped == {waiting[0]: "it is queued, not failed or cancelled"}
    second = await own.failures.preview(which, page=2, page_size=3, plan=seen.plan, bind=bind)
    assert second.ids == seen.ids[3:]
    narrow = FailureFilter(ids=which.ids, kind="ELSEWHERE")
    assert (await own.failures.preview(narrow, bind=bind)).total == 0
    if bind:
        done = await own.failures.retry_matching(plan=seen.plan)
        assert set(done.retried) == set(seen.ids) and not done.skipped


async def test_preview_and_retry_mean_failed_and_given_up_tasks(harness: Harness) -> None:
    own = operator(harness)
    ids = await fail(harness, 4)
    others = await fail(harness, 1, OTHER, kind="B")
    await own.tasks.cancel(ids[:2])
    await own.tasks.cancel(await harness.enqueue_many(1, "A"))  # never failed: no letter, not meant
    page = await own.failures.preview(A)
    assert (page.total, page.ids) == (4, [*ids[2:], *ids[:2]])
    unbound = await own.failures.preview(A, bind=False)
    assert (unbound.total, unbound.ids) == (page.total, page.ids)
    second = await own.failures.preview(A, page=2, page_size=3, bind=False)
    assert second.ids == ids[1:2]
    told = await own.failures.retry_matching(A, dry_run=True)
    assert (told.matched, told.would_retry) == (4, page.ids)
    done = await own.failures.retry_matching(A, limit=3)
    assert done.retried == page.ids[:3]
    after = await own.failures.retry_matching(plan=page.plan)
    assert after.retried == page.ids[3:] and set(after.skipped) == set(page.ids[:3])
    left = await own.failures.retry_matching(limit=10)
    assert left.retried == others, "a limit alone means all there is"


async def test_what_was_given_up_and_came_back_is_left_alone(harness: Harness) -> None:
    own = operator(harness)
    [task_id] = await fail(harness)
    await own.tasks.cancel([task_id])
    plan = (await own.failures.preview(A)).plan
    await own.tasks.retry(task_id)
    await run(harness, OTHER)
    again = await own.failures.retry_matching(plan=plan)
    assert (again.retried, list(again.skipped)) == ([], [task_id])


@pytest.mark.parametrize("listed", [True, False])
async def test_an_operation_does_what_its_plan_says(
    harness: Harness, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not listed:
        monkeypatch.setattr(plans, "MOST_TASKS_LISTED", 2)
    own = operator(harness)
    ids = await fail(harness, 5)
    await own.tasks.cancel(ids[3:])
    page = await own.failures.preview(A, page_size=2)
    assert page.total == 5
    pages = [await own.failures.preview(A, page=n, page_size=2, plan=page.plan) for n in (1, 2, 3)]
    assert [task_id for one in pages for task_id in one.ids] == ids
    begun = await own.operations.begin(Action.RETRY, plan=page.plan)
    while await step(harness.store, begun.operation.id, "w") is not None:
        pass
    ended = await own.operations.get(begun.operation.id)
    assert (ended.status, ended.total, ended.done) == (Status.COMPLETED, 5, 5)
    assert sorted(await run(harness, Completed())) == sorted(ids)


async def drive(harness: Harness, operation_id: str) -> None:
    while await step(harness.store, operation_id, "w") is not None:
        pass


@pytest.mark.parametrize("bind", [True, False])
async def test_every_way_to_retry_by_filter_means_the_same_tasks(harness: Harness, bind: bool) -> None:
    own = operator(harness)
    ids = await fail(harness, 5)
    await fail(harness, 1, OTHER, kind="B")
    await own.tasks.cancel(ids[3:])
    await own.tasks.cancel(await harness.enqueue_many(1, "A"))  # never failed: no letter, not meant
    meant = (await own.failures.preview(A)).ids
    told = await own.failures.retry_matching(A, dry_run=True)
    bound = await own.failures.select(A, 100)
    seen = await own.operations.preview(Action.RETRY, A, bind=bind)
    assert meant == told.would_retry == ids
    assert (bound.number, bound.cancelled) == (seen.number, seen.cancelled) == (5, 2)
    assert seen.first == (ids if bind else [])
    begun = await own.operations.begin(Action.RETRY, A, seen=seen)
    await drive(harness, begun.operation.id)
    ended = await own.operations.get(begun.operation.id)
    assert (ended.total, ended.done, ended.skipped) == (5, 5, 0)
    assert sorted(await run(harness, Completed())) == sorted(ids)


async def test_a_replay_takes_failed_tasks_first_and_then_given_up_ones(harness: Harness) -> None:
    own = operator(harness)
    ids = await fail(harness, 4)
    await own.tasks.cancel(ids[:2])
    bound = await own.failures.select(A, 3)
    assert (bound.number, bound.cancelled) == (3, 1)
    done = await own.failures.replay(bound, reason="mended")
    assert (done.matched, done.done, done.cancelled, done.left) == (3, 3, 1, 0)
    assert sorted(await run(harness, Completed())) == sorted([*ids[2:], ids[0]])


@pytest.mark.parametrize("purged", [False, True])
async def test_what_was_forgotten_comes_back_by_its_id_or_when_asked_for(harness: Harness, purged: bool) -> None:
    own = operator(harness, Role.ADMIN)
    kept, cancelled, gone = await fail(harness, 3)
    await own.tasks.cancel([cancelled])
    if purged:
        await own.tasks.retry(gone)
        begun = await own.operations.begin(Action.PURGE, FailureFilter(kind="A", queue="default"))
        assert begun.approval is not None
        await operator(harness, Role.ADMIN, "eva").approvals.approve(begun.approval.id)
        await drive(harness, begun.operation.id)
    else:
        await own.failures.forget([gone])
    found = {task_id: await own.tasks.get(task_id) for task_id in (cancelled, gone)}
    assert {one.state for one in found.values()} == {State.CANCELLED}
    assert (found[cancelled].forgotten, found[gone].forgotten) == (False, True)
    assert [reason.code for reason in (await own.tasks.show(gone)).why] == ["forgotten"]
    view = "redrive_v_tasks" if isinstance(harness, SqliteHarness) else "redrive.v_tasks"
    rows = await harness.sql(f"select id, forgotten from {view}")
    assert {UUID(str(task_id)): marked for task_id, marked in rows} == {kept: None, cancelled: False, gone: True}
    for _ in range(2):
        stats = await own.health.stats()
        assert (stats.totals()["cancelled"], stats.forgotten()) == (2, {"A": 1})
        await harness.store.upkeep("fold")
    meant = [kept, cancelled]
    for which in (A, FailureFilter(error_code="TASK_PRECONDITION_FAILED"), FailureFilter()):
        assert (await own.failures.preview(which)).ids == meant
        assert (await own.failures.retry_matching(which, limit=9, dry_run=True)).would_retry == meant
        assert (await own.failures.select(which, 9)).number == 2
        assert (await own.operations.preview(Action.RETRY, which)).number == 2
        all_of_them = replace(which, forgotten=True)
        assert set((await own.failures.preview(all_of_them)).ids) == {kept, cancelled, gone}
        assert (await own.operations.preview(Action.RETRY, all_of_them)).number == 3
    assert (await own.operations.preview(Action.RETRY, FailureFilter(forgotten=True))).approval is not None
    assert (await own.failures.preview(FailureFilter(ids=(gone,)))).ids == [gone]
    assert (await own.failures.retry([gone])).done == [gone]
    assert (await own.health.stats()).forgotten() == {} and not (await own.tasks.get(gone)).forgotten


async def test_a_dry_run_after_something_changed_is_about_what_is_there_now(harness: Harness) -> None:
    own = operator(harness)
    first, second, third = await fail(harness, 3)

    async def dry_run() -> tuple[int, int, list[UUID]]:
        seen = await own.operations.preview(Action.RETRY, A, bind=True)
        page = await own.failures.preview(A)
        assert (page.total, page.ids) == (seen.number, seen.first)
        return seen.number, seen.cancelled, seen.first

    assert await dry_run() == (3, 0, [first, second, third])
    await own.tasks.cancel([first])
    assert await dry_run() == (3, 1, [second, third, first])
    await own.tasks.retry(first)
    await own.tasks.cancel([second])  # as many of each as before, and others
    assert await dry_run() == (2, 1, [third, second])
    await own.tasks.cancel([first])
    await own.tasks.retry(second)
    assert await dry_run() == (2, 1, [third, first])
    await own.failures.forget([third])
    assert await dry_run() == (1, 1, [first])


async def test_a_preview_and_an_approval_warn_of_what_keeps_the_tasks_from_running(harness: Harness) -> None:
    own = operator(harness, approvals_above=2)
    await fail(harness, 3)
    await fail(harness, 2, kind="B", queue="far", scope="s")
    everything, named = FailureFilter(), FailureFilter(scope="s")

    async def warned(which: FailureFilter) -> list[tuple[str, str, int]]:
        seen = (await own.operations.preview(Action.RETRY, which)).obstacles
        again = await own.operations.obstacles(which)
        told, repeated = ([(one.code, one.fix, one.tasks) for one in found] for found in (seen, again))
        assert told == repeated  # but for since when a circuit is open
        return told

    start = "redrive work --app module:app --queue"
    assert await warned(everything) == [("no_worker", f"{start} default", 3), ("no_worker", f"{start} far", 2)]
    assert await warned(named) == [("no_worker", f"{start} far", 2)]
    await harness.tick("w1")  # of queue default
    assert await warned(A) == []
    begun = await own.operations.begin(Action.RETRY, A)
    assert begun.approval is not None
    assert await own.approvals.obstacles(begun.approval) == []
    await own.control.pause("queue", "default", "the other side is down")
    await harness.control(SetCircuit("smtp", 0, ("B",), True, 60.0, "connect: ConnectionError", "w1", 0, 1))
    [found] = await own.approvals.obstacles(begun.approval)
    assert found.text == "queue default is paused by ann (the other side is down): 3 tasks of these would wait"
    assert (found.fix, found.pause and found.pause.name) == ("redrive resume --queue default", "default")
    assert [code for code, *_ in await warned(everything)] == ["paused", "circuit", "no_worker"]
    assert [code for code, *_ in await warned(named)] == ["circuit", "no_worker"]


async def test_giving_up_is_about_failed_tasks_whatever_the_plan(harness: Harness) -> None:
    own = operator(harness)
    ids = await fail(harness, 3)
    await own.failures.forget(ids[:1])
    plan = (await own.failures.preview(A)).plan
    for named in (None, plan):
        seen = await own.operations.preview(Action.FORGET, A if named is None else FailureFilter(), named)
        assert (seen.number, seen.cancelled) == (2, 0)
    begun = await own.operations.begin(Action.FORGET, plan=plan)
    await drive(harness, begun.operation.id)
    ended = await own.operations.get(begun.operation.id)
    assert (ended.total, ended.done, ended.skipped) == (2, 2, 0)
    assert {(await own.tasks.get(task_id)).state for task_id in ids} == {State.CANCELLED}
