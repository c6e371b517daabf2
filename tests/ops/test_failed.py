"""Preview, plans and retries of many."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from redrive.errors import ApprovalNeeded, InvalidInput, PlanUnknown
from redrive.kernel.failure_filter import EVERY_FAILURE, FailedRef, FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import State
from redrive.ops import actions, failures
from redrive.ops.allowance import UNRESTRICTED, Rule
from redrive.ops.operations import lifecycle, plans, retry
from redrive.ops.operations.drive import step
from redrive.ops.operations.selection import ENDLESS, Matches, Selection
from redrive_kit.conformance.harness import Harness
from tests.ops.making import OTHER, fail, run

A = FailureFilter(kind="A")


async def test_pages_of_a_preview_have_everything_once(harness: Harness) -> None:
    ids = await fail(harness, 7)
    await fail(harness, 2, OTHER, "B")
    pages = [await plans.preview(harness.store, FailureFilter(kind="A"), page=n, page_size=3) for n in (1, 2, 3, 4)]
    assert [task.id for page in pages for task in page.tasks] == ids
    assert {(page.total, page.pages) for page in pages} == {(7, 3)}
    assert await harness.audit() == []


async def test_a_plan_is_about_the_tasks_that_were_previewed(harness: Harness) -> None:
    ids = await fail(harness, 5)
    page = await plans.preview(harness.store, FailureFilter(kind="A"), page_size=2, bind="ann")
    assert page.plan is not None and page.total == 5
    await fail(harness, 3)  # failed later: not part of it
    await actions.retry(harness.store, ids[:1], actor="bob")  # one is gone, and one is failed by another failure
    await actions.retry(harness.store, ids[1:2], actor="bob")
    await run(harness, OTHER)
    rest = await plans.preview(harness.store, FailureFilter(), page=1, page_size=10, plan=page.plan)
    assert [task.id for task in rest.tasks] == ids[2:]
    previewed = await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED, plan=page.plan, dry_run=True)
    result = await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED, plan=page.plan)
    assert (previewed.would_retry, previewed.retried, previewed.bulk_id) == (ids[2:], [], None)
    assert (result.would_retry, result.retried) == ([], ids[2:])
    for told in (previewed, result):
        again = "it is failed, but no longer by the failure that was meant"
        assert told.skipped == {ids[0]: again, ids[1]: again}
    assert await harness.store.count_failed(FailureFilter()) == 5
    rows = await harness.audit(bulk_id=result.bulk_id)
    assert sorted(row.action.removeprefix("TASK_RETRY_BATCH_") for row in rows) == [
        "ITEM",
        "ITEM",
        "ITEM",
        "SKIPPED",
        "SKIPPED",
        "SUMMARY",
    ]


async def test_a_plan_says_it_all(harness: Harness) -> None:
    await fail(harness)
    page = await plans.preview(harness.store, FailureFilter(), bind="ann")
    with pytest.raises(InvalidInput, match="a plan says"):
        await retry.retry_matching(
            harness.store, FailureFilter(kind="A"), actor="ann", rule=UNRESTRICTED, plan=page.plan
        )
    with pytest.raises(PlanUnknown):
        await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED, plan="nonsense")
    await harness.advance(86_400 + 1)
    await harness.store.upkeep("prune")
    with pytest.raises(PlanUnknown, match="no such plan"):
        await plans.preview(harness.store, FailureFilter(), plan=page.plan)


async def test_tasks_named_by_id(harness: Harness) -> None:
    failures, queued, nobody = await fail(harness, 3), await harness.enqueue(), UUID(int=5)
    which = FailureFilter(ids=(failures[2], queued, failures[0], nobody, failures[2]))
    result = await retry.retry_matching(harness.store, which, actor="ann", rule=UNRESTRICTED, reason="mended")
    assert result.matched == 4
    assert result.retried == [failures[2], failures[0]]
    assert result.skipped == {queued: "it is queued, not failed or cancelled", nobody: "not found"}
    task = await harness.task(failures[0])
    assert (task.replay_count, task.last_replayed_by, task.last_replayed_reason) == (1, "ann", "mended")
    assert (task.attempt_count, task.error_code, task.failed_at) == (0, None, None)
    assert await harness.store.count_failed(FailureFilter()) == 1


async def test_tasks_named_by_id_that_other_filters_leave_out(harness: Harness) -> None:
    """They were named: each of them is answered, and audited, with what became of it."""
    [mine, given_up], [other] = await fail(harness, 2, scope="e1"), await fail(harness, kind="B", scope="e1")
    [elsewhere] = await fail(harness)
    queued = await harness.enqueue(scope="e1")
    await actions.cancel(harness.store, [given_up], actor="bob")
    named = (mine, given_up, other, elsewhere, queued)
    which = FailureFilter(kind="A", scope="e1", ids=named)
    told = await retry.retry_matching(harness.store, which, actor="ann", rule=UNRESTRICTED, dry_run=True)
    done = await retry.retry_matching(harness.store, which, actor="ann", rule=UNRESTRICTED)
    assert told.would_retry == done.retried == [mine, given_up]
    assert (
        told.skipped
        == done.skipped
        == {
            other: "its kind is B, not A",
            elsewhere: "its scope is none, not e1",
            queued: "it is queued, not failed or cancelled",
        }
    )
    rows = await harness.audit(action="TASK_RETRY_BATCH_SKIPPED")
    assert {row.task_id: row.reason for row in rows} == done.skipped
    [summary] = await harness.audit(action="TASK_RETRY_BATCH_SUMMARY")
    assert (summary.after["matched"], summary.after["done"], summary.after["skipped"]) == (2, 2, 3)


async def test_the_first_failures_come_first_and_the_limit_holds(harness: Harness) -> None:
    ids = await fail(harness, 60)
    assert (await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED, limit=7)).retried == ids[:7]
    assert (await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED)).retried == ids[7:57]
    with pytest.raises(InvalidInput, match="from 1 to 500"):
        await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED, limit=501)
    with pytest.raises(InvalidInput, match="501 tasks are more than the 500"):
        await retry.retry_matching(
            harness.store, FailureFilter(ids=tuple(map(UUID, map(_number, range(501))))), actor="ann", rule=UNRESTRICTED
        )


def _number(n: int) -> str:
    return f"00000000-0000-0000-0000-{n:012d}"


async def test_two_operators_at_once_retry_each_task_once(harness: Harness) -> None:
    ids = await fail(harness, 40)
    other = await harness.another()
    await other.open()
    which = FailureFilter(ids=tuple(ids))
    ann, bob = await asyncio.gather(
        retry.retry_matching(harness.store, which, actor="ann", rule=UNRESTRICTED),
        retry.retry_matching(other, which, actor="bob", rule=UNRESTRICTED),
    )
    assert sorted([*ann.retried, *bob.retried]) == sorted(ids)
    assert set(ann.skipped) == set(bob.retried) and set(bob.skipped) == set(ann.retried)
    assert {(await harness.task(task_id)).replay_count for task_id in ids} == {1}
    assert len(await harness.audit(action="TASK_RETRY_BATCH_ITEM")) == 40


async def test_statistics(harness: Harness) -> None:
    await fail(harness, 3, group="g")
    await fail(harness, 2, OTHER, "B")
    stats = await failures.statistics(harness.store)
    assert stats.total == 5
    assert stats.by_kind == {"A": 3, "B": 2}
    assert stats.by_group == {"g": 3, "": 2}
    assert stats.by_code == {"TASK_PRECONDITION_FAILED": 3, "TASK_PAYLOAD_INVALID": 2}
    assert stats.by_reason == {"non_retryable": 5}
    assert sum(stats.by_type.values()) == sum(stats.by_fingerprint.values()) == 5


async def test_forgotten_tasks_are_no_failures_and_can_be_brought_back(harness: Harness) -> None:
    (task_id,), queued = await fail(harness), await harness.enqueue()
    result = await actions.forget(harness.store, [task_id, queued], actor="ann", reason="ordered twice")
    assert result.done == [task_id]
    assert result.skipped == {queued: "it is queued, not failed"}
    assert await harness.state(task_id) is State.CANCELLED
    assert await harness.store.count_failed(FailureFilter()) == 0
    await harness.check_totals()
    (row,) = await harness.audit()
    assert (row.action, row.reason, row.before) == (
        "TASK_FORGET",
        "ordered twice",
        {"state": "failed", "attempt_count": 1},
    )
    assert (await actions.retry(harness.store, [task_id], actor="ann")).done == [task_id]


async def test_pages_of_a_plan_stay_what_they_were(harness: Harness) -> None:
    ids = await fail(harness, 4)
    first = await plans.preview(harness.store, FailureFilter(), page_size=2, bind="ann")
    assert first.ids == ids[:2]
    await actions.retry(harness.store, ids[:1], actor="bob")
    second = await plans.preview(harness.store, FailureFilter(), page=2, page_size=2, plan=first.plan)
    assert second.ids == ids[2:] and [task.id for task in second.tasks] == ids[2:]


async def test_a_plan_ends_after_a_day_also_when_nobody_prunes(harness: Harness) -> None:
    await fail(harness)
    page = await plans.preview(harness.store, FailureFilter(), bind="ann")
    await harness.advance(86_400)
    with pytest.raises(PlanUnknown):
        await retry.retry_matching(harness.store, actor="ann", rule=UNRESTRICTED, plan=page.plan)


async def test_what_was_forgotten_meanwhile_is_not_revived(harness: Harness) -> None:
    (task_id,) = await fail(harness)
    seen = (await harness.task(task_id)).failed_seq
    await actions.forget(harness.store, [task_id], actor="bob")
    chosen = Selection(Matches(EVERY_FAILURE, ENDLESS, 1), 1, [FailedRef(task_id, seen, None)])
    result = await retry.retry_now(harness.store, [chosen], actor="ann", rule=UNRESTRICTED)
    assert result.skipped == {task_id: "it is cancelled, but no longer by the failure that was meant"}
    assert await harness.state(task_id) is State.CANCELLED


async def test_a_preview_with_a_limit_is_about_what_the_retry_reaches(harness: Harness) -> None:
    ids = await fail(harness, 6)
    await actions.cancel(harness.store, ids[4:], actor="bob")
    for limit in (2, 4, 5, 6, 50):
        previewed = await retry.retry_matching(
            harness.store, A, actor="ann", rule=UNRESTRICTED, limit=limit, dry_run=True
        )
        for bind in ("ann", None):
            page = await plans.preview(harness.store, A, limit=limit, bind=bind)
            assert (page.ids, page.total) == (previewed.would_retry, min(limit, 6)), (limit, bind)
            second = await plans.preview(harness.store, A, limit=limit, page=2, page_size=2, plan=page.plan)
            assert second.ids == previewed.would_retry[2:4], (limit, bind)
    named = replace(A, ids=tuple(reversed(ids)))
    previewed = await retry.retry_matching(harness.store, named, actor="ann", rule=UNRESTRICTED, limit=3, dry_run=True)
    page = await plans.preview(harness.store, named, limit=3)
    assert set(page.ids) == set(previewed.would_retry) == set(ids[3:])
    with pytest.raises(InvalidInput, match="limit"):
        await plans.preview(harness.store, A, limit=501)


async def test_a_plan_with_a_limit_is_judged_by_its_limit(harness: Harness) -> None:
    ids = await fail(harness, 6)
    page = await plans.preview(harness.store, A, limit=2, bind="ann")
    with pytest.raises(ApprovalNeeded, match="2 tasks are more than 1"):
        await retry.retry_matching(harness.store, actor="ann", rule=Rule(1), plan=page.plan)
    begun, _ = await lifecycle.begin(harness.store, Action.RETRY, actor="ann", rule=UNRESTRICTED, plan=page.plan)
    await harness.advance(25 * 3600)  # the plan is gone, and the operation knows its own bounds
    while await step(harness.store, begun.id, "w1") is not None:
        pass
    assert [await harness.state(task_id) for task_id in ids] == [State.QUEUED] * 2 + [State.FAILED] * 4


async def test_a_plan_cut_among_cancelled_tasks_ends_there_also_when_it_is_gone(harness: Harness) -> None:
    ids = await fail(harness, 6)
    await actions.cancel(harness.store, ids[2:], actor="bob")
    page = await plans.preview(harness.store, A, limit=4, bind="ann")
    begun, _ = await lifecycle.begin(harness.store, Action.RETRY, actor="ann", rule=UNRESTRICTED, plan=page.plan)
    await harness.advance(25 * 3600)
    while await step(harness.store, begun.id, "w1") is not None:
        pass
    assert [await harness.state(task_id) for task_id in ids] == [State.QUEUED] * 4 + [State.CANCELLED] * 2
