"""Members of a join: listed by state and kind, live and finished, in pages; and chosen among failures."""

from __future__ import annotations

from uuid import UUID

from redrive.ids import new_id
from redrive.kernel.commit import Commit
from redrive.kernel.failed import FailureFilter
from redrive.kernel.joins import NewJoin
from redrive.kernel.machine import Event
from redrive.kernel.outcome import Completed
from redrive.kernel.reads import Query
from redrive.kernel.task import State
from redrive_kit.conformance.harness import TERMINAL, Harness


async def members(harness: Harness) -> tuple[str, dict[State, list[UUID]]]:
    """A join with members in every state but delayed and paused, beside tasks that are none of it."""
    join = NewJoin(new_id(), open=True)
    await harness.store.apply(Commit(joins=[join]))
    found = dict[State, list[UUID]]()
    for state, outcome in ((State.COMPLETED, Completed()), (State.FAILED, TERMINAL)):
        found[state] = await harness.enqueue_many(3, "A", join=join.id)
        for claimed in await harness.claim(3):
            await harness.settle(claimed, outcome)
    found[State.CANCELLED] = await harness.enqueue_many(2, "A", join=join.id)
    assert await harness.operate(Event.CANCEL, *found[State.CANCELLED])
    found[State.RUNNING] = await harness.enqueue_many(2, "B", join=join.id)
    await harness.claim(2)
    found[State.QUEUED] = await harness.enqueue_many(4, "B", join=join.id)
    await harness.enqueue_many(3, "A")
    return str(join.id), found


class TestMembers:
    async def test_by_state(self, harness: Harness) -> None:
        join, found = await members(harness)
        for state, ids in found.items():
            listed = await harness.store.find(Query((state,), join=join))
            assert {task.id for task in listed} == set(ids) and {task.state for task in listed} == {state}
        listed = await harness.store.find(Query((State.FAILED, State.COMPLETED), join=join))
        assert {task.id for task in listed} == {*found[State.FAILED], *found[State.COMPLETED]}

    async def test_in_pages_and_by_kind(self, harness: Harness) -> None:
        join, found = await members(harness)
        everything = sorted((task_id for ids in found.values() for task_id in ids), reverse=True)
        listed, before = list[UUID](), None
        while page := await harness.store.find(Query(join=join, limit=5, before=before)):
            listed += [task.id for task in page]
            before = page[-1].id
        assert listed == everything
        ids = {*found[State.QUEUED], *found[State.RUNNING]}
        assert {task.id for task in await harness.store.find(Query(join=join, kind="B"))} == ids
        assert await harness.store.find(Query(join=str(new_id()))) == []

    async def test_its_failures(self, harness: Harness) -> None:
        await harness.failed()
        join, found = await members(harness)
        which = FailureFilter(join=join)
        assert [one.id for one in await harness.store.failed_ids(which, limit=9)] == found[State.FAILED]
        assert await harness.store.count_failed(which) == 3
        assert (await harness.store.failed_end(which, cancelled=True))[1] == 0
        [failed] = await harness.store.failed(which, limit=1)
        assert which.unlike(failed) is None and FailureFilter(join=str(new_id())).unlike(failed) is not None
