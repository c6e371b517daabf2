"""What one operator may do alone: it cannot be split, by no route, at no moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from redrive.app.failed_tasks import FailedTasks
from redrive.errors import ApprovalNeeded, InvalidInput, RedriveError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.machine import Event, Transition
from redrive.kernel.operation import Action, Canary, Status, Then
from redrive.kernel.records import Put
from redrive.kernel.task import State
from redrive.ops.access import Role, refuse_reserved
from redrive.ops.allowance import PlannedAction, Rule, alone
from redrive.ops.operations.drive import step
from redrive.ops.operations.lifecycle import How
from redrive.ops.operator import Operator
from redrive_kit.conformance.harness import Harness
from tests.ops.making import OTHER, fail, run
from tests.ops.test_operator import operator

A = FailureFilter(kind="A")
SAID: dict[str, Any] = {"fixed": "the bucket exists", "idempotent": True}


def ann(harness: Harness, name: str = "ann", above: int | None = 10) -> Operator:
    return operator(harness, Role.OPERATOR, name, approvals_above=above)


async def test_two_halves_are_a_whole(harness: Harness) -> None:
    ids = await fail(harness, 12)
    assert len((await ann(harness).failures.retry(ids[:6])).done) == 6
    with pytest.raises(ApprovalNeeded, match="6 tasks and the 6 of ann within 60 minutes are more than 10"):
        await ann(harness).failures.retry(ids[6:])
    for route in (
        lambda own: own.failures.forget(ids[6:]),
        lambda own: own.failures.retry_matching(A),
        lambda own: own.failures.retry_matching(FailureFilter(ids=tuple(ids[6:]))),
        lambda own: own.tasks.cancel(ids[6:]),
    ):
        with pytest.raises(ApprovalNeeded):
            await route(ann(harness, " ANN "))
    begun = await ann(harness, "Ann").operations.begin(Action.FORGET, A)
    assert begun.operation.status is Status.WAITING and begun.approval is not None
    assert len((await ann(harness, "bob").failures.retry(ids[6:9])).done) == 3, "others are others"
    assert len((await ann(harness).failures.retry(ids[9:])).done) == 3, "up to the number it goes"


async def test_it_is_judged_by_how_many_it_retries(harness: Harness) -> None:
    await fail(harness, 16)
    told = await ann(harness).failures.retry_matching(A, dry_run=True)
    assert told.needs_approval == "16 tasks are more than 10" and len(told.would_retry) == 16
    for which in (A, FailureFilter()):
        told = await ann(harness).failures.retry_matching(which, limit=4, dry_run=True)
        assert told.needs_approval is None
        assert len((await ann(harness).failures.retry_matching(which, limit=4)).retried) == 4, "a limit alone will do"
    with pytest.raises(ApprovalNeeded, match="4 tasks and the 8 of ann within 60 minutes are more than 10"):
        await ann(harness).failures.retry_matching(A, limit=4)
    with pytest.raises(InvalidInput, match="say which tasks"):
        await ann(harness).failures.retry_matching()


async def test_after_a_while_it_is_forgotten(harness: Harness) -> None:
    ids = await fail(harness, 16)
    await ann(harness).failures.retry(ids[:8])
    await harness.advance(30 * 60)
    with pytest.raises(ApprovalNeeded):
        await ann(harness).failures.retry(ids[8:])
    await ann(harness).failures.retry(ids[8:9])
    await harness.advance(32 * 60)
    assert len((await ann(harness).failures.retry(ids[9:])).done) == 7
    await fail(harness, 3, queue="other")
    with pytest.raises(ApprovalNeeded, match="3 tasks and the 8 of ann"):
        await ann(harness).failures.retry_matching(FailureFilter(queue="other"))


async def test_a_bounded_replay_is_judged_by_its_bound(harness: Harness) -> None:
    await fail(harness, 14)
    own = ann(harness)
    bound = await own.failures.select(FailureFilter(), 10)
    assert (bound.number, (await own.failures.foresee(bound)).needs_approval) == (10, None)
    assert (await own.failures.replay(bound)).done == 10
    rest = await own.failures.select(FailureFilter(), 100)
    assert rest.number == 4 and "the 10 of ann" in ((await own.failures.foresee(rest)).needs_approval or "")
    with pytest.raises(ApprovalNeeded):
        await own.failures.replay(rest)
    assert (await ann(harness, "bob").failures.replay(rest)).done == 4, "also where that is all there is"
    large = await own.failures.select(FailureFilter(), 100)
    assert large.number == 0


async def test_one_by_one_is_as_many_as_at_once(harness: Harness) -> None:
    ids = await fail(harness, 5)
    own = ann(harness, above=3)
    await own.tasks.retry(ids[0])
    await own.failures.forget([ids[1]])
    await own.tasks.cancel([ids[2]])
    one = ids[3:4]
    for again in (
        own.tasks.retry(one[0]),
        own.failures.retry(one),
        own.failures.forget(one),
        own.tasks.cancel(one),
        own.failures.retry_matching(FailureFilter(ids=tuple(one))),
    ):
        with pytest.raises(ApprovalNeeded, match="1 task and the 3 of ann"):
            await again
    assert await harness.state(ids[3]) is State.FAILED


async def test_only_what_moved_counts(harness: Harness) -> None:
    ids = await fail(harness, 10)
    own = ann(harness)
    await own.failures.retry(ids[:4])
    assert len((await own.failures.retry(ids[:4])).skipped) == 4
    assert len((await own.failures.retry(ids[4:])).done) == 6


async def test_of_two_at_once_one_is_refused(harness: Harness) -> None:
    ids = await fail(harness, 12)
    together = await asyncio.gather(
        ann(harness).failures.retry(ids[:6]), ann(harness, "Ann").failures.forget(ids[6:]), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in together) == ["ApprovalNeeded", "Result"]
    assert (await ann(harness).failures.list()).total == 6


async def test_of_many_operations_at_once_the_rest_has_to_wait(harness: Harness) -> None:
    for n in range(4):
        await fail(harness, 4, scope=f"s{n}")
    begun = await asyncio.gather(
        *(ann(harness).operations.begin(Action.RETRY, FailureFilter(scope=f"s{n}")) for n in range(4))
    )
    states = [one.operation.status for one in begun]
    assert (states.count(Status.RUNNING), states.count(Status.WAITING)) == (2, 2)


async def test_single_ones_at_once_all_count(harness: Harness) -> None:
    ids = await fail(harness, 20)
    done = await asyncio.gather(*(ann(harness).tasks.retry(task_id) for task_id in ids), return_exceptions=True)
    assert [type(one) for one in done].count(ApprovalNeeded) == 10
    await fail(harness, 1, OTHER, kind="B", queue="other")
    told = await ann(harness).failures.retry_matching(FailureFilter(kind="B"), dry_run=True)
    assert told.needs_approval is not None and "the 10 of ann" in told.needs_approval


async def test_what_was_approved_does_not_count(harness: Harness) -> None:
    await fail(harness, 11)
    begun = await ann(harness).operations.begin(Action.RETRY, A)
    assert begun.approval is not None
    with pytest.raises(RedriveError, match="asked for it"):
        await ann(harness, "ANN").approvals.approve(begun.approval.id)
    await ann(harness, "bob").approvals.approve(begun.approval.id)
    ids = await fail(harness, 10, kind="B")
    assert len((await ann(harness).failures.retry(ids)).done) == 10


async def test_whoever_retries_or_flushes_everything_says_what_was_mended(harness: Harness) -> None:
    await fail(harness, 2)
    own = ann(harness)
    for action in (Action.RETRY, Action.FORGET):
        partly: list[dict[str, Any]] = [{}, {"fixed": "it"}, {"idempotent": False}]
        for said in partly:
            with pytest.raises(InvalidInput, match="must be answered"):
                await own.operations.begin(action, how=How(**said))
    plan = (await own.failures.preview()).plan
    with pytest.raises(InvalidInput, match="must be answered"):
        await own.operations.begin(Action.RETRY, plan=plan)
    begun = await own.operations.begin(Action.RETRY, reason="back", how=How(**SAID))
    assert begun.approval is not None
    assert {name: begun.approval.body[name] for name in SAID} == SAID
    assert (begun.operation.fixed, begun.operation.idempotent) == ("the bucket exists", True)
    await ann(harness, "bob").approvals.approve(begun.approval.id)
    for action in ("APPROVAL_REQUEST", "OPERATION_START"):
        [row] = (await own.audit.query(AuditFilter(action=action))).rows
        assert {name: row.after[name] for name in SAID} == SAID
    off = ann(harness, above=None)
    with pytest.raises(InvalidInput, match="must be answered"):
        await off.operations.begin(Action.FORGET)
    assert (await off.operations.begin(Action.FORGET, how=How(**SAID))).approval is None


async def test_a_dry_run_says_what_would_be_needed(harness: Harness) -> None:
    ids = await fail(harness, 12)
    own = ann(harness)
    assert (await own.operations.preview(Action.RETRY, A)).approval == "12 tasks are more than 10"
    for limit, needed in ((12, "12 tasks are more than 10"), (9, None)):
        found = await own.failures.select(FailureFilter(), limit)
        assert (await own.failures.foresee(found)).needs_approval == needed
    assert (await own.failures.dry_run(ids)).needs_approval == "12 tasks are more than 10"
    assert (await own.failures.dry_run(ids[:1])).needs_approval is None
    plan = (await own.failures.preview()).plan
    assert (await own.failures.retry_matching(plan=plan, dry_run=True)).needs_approval == "everything is retried"


async def test_the_application_is_no_operator(harness: Harness) -> None:
    """What its own code retries is its own business: neither refused nor counted, but audited."""
    ids = await fail(harness, 12)

    async def store() -> Any:
        return harness.store

    assert len((await FailedTasks(store).retry_many(ids)).retried) == 12
    rows = (await ann(harness).audit.query(AuditFilter(action="TASK_RETRY_BATCH_SUMMARY"))).rows
    assert [row.actor for row in rows] == ["app"]


@pytest.mark.parametrize("state", [State.PAUSED, State.RUNNING])
async def test_cancelling_one_by_one_is_a_purge(harness: Harness, state: State) -> None:
    ids = await harness.enqueue_many(6)
    if state is State.RUNNING:
        await harness.claim(6)
    if state is State.PAUSED:
        await ann(harness).tasks.pause(ids)
    own = ann(harness, above=3)
    for task_id in ids[:3]:
        result = await own.tasks.cancel([task_id])
        assert (result.requested if state is State.RUNNING else result.done) == [task_id]
    with pytest.raises(ApprovalNeeded, match="1 task and the 3 of ann") as refused:
        await own.tasks.cancel(ids[3:4])
    assert "redrive purge" in (refused.value.hint or "")
    assert await harness.state(ids[3]) is state
    assert len((await ann(harness, "bob").tasks.cancel(ids[3:])).skipped) == 0


@pytest.mark.parametrize("verb", ["cancel", "forget"])
async def test_naming_others_hides_nothing_and_costs_nothing(harness: Harness, verb: str) -> None:
    ids = await fail(harness, 6)
    done = await harness.enqueue_many(4)
    await run(harness)
    own = ann(harness)

    async def act(named: list[Any]) -> Any:
        return await (own.tasks.cancel(named) if verb == "cancel" else own.failures.forget(named))

    result = await act([*ids[:4], *done])
    assert (len(result.done), set(result.skipped)) == (4, set(done))
    assert len((await act(done)).skipped) == 4
    with pytest.raises(ApprovalNeeded, match="7 tasks and the 4 of ann"):
        await act([*ids, *done[:1]])
    assert len((await act([*ids[4:], *done])).done) == 2


LOOK_ALIKE = ["a\u200bnn", "ann\ufeff", "\u2060ann", "A\u00adnn", "an\ufe0fn", "\uff41nn", " ann\u3164"]


async def test_who_looks_like_ann_is_ann(harness: Harness) -> None:
    ids = await fail(harness, 12)
    await ann(harness).failures.retry(ids[:6])
    begun = await ann(harness).operations.begin(Action.FORGET, A)
    assert begun.approval is not None
    for name in LOOK_ALIKE:
        with pytest.raises(ApprovalNeeded):
            await ann(harness, name).failures.forget(ids[6:])
        with pytest.raises(RedriveError, match="asked for it"):
            await ann(harness, name).approvals.approve(begun.approval.id)
    for nobody in ("\u200b", "\u3164 ", "\u2800"):
        with pytest.raises(InvalidInput, match="an action needs an actor"):
            await ann(harness, nobody).tasks.retry(ids[6])


def test_what_looks_like_redrive_is_refused() -> None:
    for name in ("redrive", "Red\u200brive", "ｒｅｄｒｉｖｅ", "redrive:\u00adworker"):
        with pytest.raises(InvalidInput, match="redrive itself"):
            refuse_reserved(name)


async def test_an_operation_that_is_over_counts_with_what_it_moved(harness: Harness) -> None:
    """Who tries a few first, and stops there, has retried a few; as long as it may go on, it counts in full."""
    await fail(harness, 8)
    more, last = await fail(harness, 8, kind="B"), await fail(harness, 1, kind="C")
    own = ann(harness)
    begun = await own.operations.begin(Action.RETRY, A, how=How(canary=Canary(2, then=Then.WAIT)))
    await step(harness.store, begun.operation.id, "w")
    assert (await own.operations.get(begun.operation.id)).done == 2
    with pytest.raises(ApprovalNeeded, match="8 tasks and the 8 of ann"):
        await own.failures.retry(more)
    await own.operations.cancel(begun.operation.id)
    told = await own.failures.retry_matching(FailureFilter(ids=tuple(more)), dry_run=True)
    assert told.needs_approval is None
    assert len((await own.failures.retry(more)).done) == 8
    with pytest.raises(ApprovalNeeded, match="1 task and the 10 of ann"):
        await own.failures.retry(last)


async def test_an_amount_counts_in_full_whatever_moves_with_it(harness: Harness) -> None:
    ids = await fail(harness, 6)
    for task_id in ids:
        assert await harness.operate(Event.CANCEL, task_id)
    rule = Rule(10, book="charges", noun="units")

    async def charge(puts: Sequence[Put]) -> None:
        moves = [Transition(task_id, Event.CANCEL, State.CANCELLED, actor="ann") for task_id in ids]
        applied = await harness.store.apply(Commit(transitions=moves, puts=list(puts)))
        assert len(applied.lost) == 6, "they were put away before"

    await alone(harness.store, rule, "ann", PlannedAction(None, 6), charge)
    with pytest.raises(ApprovalNeeded, match="6 units and the 6 of ann"):
        await alone(harness.store, rule, "ann", PlannedAction(None, 6), charge)
