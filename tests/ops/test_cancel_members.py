"""Cancelling the members of a join: one operation, piece by piece, whatever moves meanwhile."""

from __future__ import annotations

import pytest

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel import operation as kernel
from redrive.kernel.commit import Commit
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.joins import NewJoin
from redrive.kernel.machine import Event
from redrive.kernel.operation import Action, Status
from redrive.kernel.outcome import Retry
from redrive.kernel.task import State
from redrive.ops.operations import lifecycle
from redrive.ops.operations.drive import step
from redrive_kit.conformance.harness import Harness
from tests.ops.test_operations import begin, to_the_end


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "TASKS_PER_PIECE", 4)


async def test_what_waits_is_cancelled_and_what_runs_is_asked(harness: Harness) -> None:
    join = NewJoin(new_id())
    await harness.store.apply(Commit(joins=[join], enqueues=[harness.new(join=join.id) for _ in range(12)]))
    claimed = await harness.claim(3)
    other = await harness.enqueue()
    operation = await begin(harness.store, Action.CANCEL, FailureFilter(join=str(join.id)))
    assert operation.total == 12
    await step(harness.store, operation.id, "w1")
    # One comes back from its worker behind the place that the operation has reached.
    await harness.settle(claimed[0], Retry("again", after=60))
    ended = await to_the_end(harness.store, operation)
    assert (ended.status, ended.done, ended.skipped) == (Status.COMPLETED, 12, 0)
    assert await harness.state(claimed[0].id) is State.CANCELLED
    for one in claimed[1:]:
        assert (await harness.task(one.id)).cancel_requested_at is not None
        await harness.settle(one, Retry("again", after=60))
    [found] = await harness.store.joins([join.id])
    assert (found.cancelled, found.pending) == (12, 0) and found.ended_at is not None
    assert await harness.state(other) is State.QUEUED
    rows = await harness.audit(bulk_id=operation.id)
    assert rows[0].action == "TASK_CANCEL_BATCH_SUMMARY" and rows[0].after["filter"] == {"join": str(join.id)}


async def test_what_somebody_retries_since_is_left_alone(harness: Harness) -> None:
    join = NewJoin(new_id(), open=True)
    await harness.store.apply(Commit(joins=[join]))
    first = await harness.failed(join=join.id)
    waiting = await harness.enqueue_many(2, join=join.id)
    operation = await begin(harness.store, Action.CANCEL, FailureFilter(join=str(join.id)))
    await harness.advance(1)
    assert await harness.operate(Event.REDRIVE, first)
    late = await harness.enqueue(join=join.id)  # whoever adds after the decision is met all the same
    ended = await to_the_end(harness.store, operation)
    assert ended.status is Status.COMPLETED and await harness.state(first) is State.QUEUED
    assert {await harness.state(one) for one in (*waiting, late)} == {State.CANCELLED}


@pytest.mark.parametrize(
    "which", [FailureFilter(), FailureFilter(kind="A"), FailureFilter(join=str(new_id()), kind="A")]
)
async def test_it_is_about_one_batch(harness: Harness, which: FailureFilter) -> None:
    with pytest.raises(InvalidInput, match="by batch"):
        await lifecycle.preview(harness.store, Action.CANCEL, which)
