"""Batches of any tasks: made, filled, ended, nested, cancelled, retried."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from redrive import App
from redrive.batches import BatchCancelled, BatchConflict, BatchService, BatchState
from redrive.batches import batch_input as giving
from redrive.batches.batch_builder import mark_agreed
from redrive.errors import InvalidInput, RedriveError
from redrive.kernel.audit import AuditFilter
from redrive.kernel.task import State
from redrive.ops import approvals
from redrive.ops.access import Caller, Role
from redrive.ops.allowance import Rule
from redrive.ops.operations.drive import drive
from redrive.ops.operator.session import Policy
from tests.batches.conftest import drain

ANN = Caller("ann", Role.OPERATOR)


async def service(app: App) -> BatchService:
    return (await app.operator(ANN)).of(BatchService)


def counts(batch: Any) -> tuple[int, int, int, int]:
    return batch.total, batch.completed, batch.failed, batch.cancelled


async def test_what_follows_comes_once(app: Any) -> None:
    batch = await app.batch(
        [("WORK", {"n": n}) for n in range(5)],
        on_complete=("ENDED", {"batch": "b"}),
        on_success={"kind": "SUCCEEDED", "payload": {"batch": "b"}},
        name="five",
        meta={"for": "bob"},
    )
    assert counts(batch) == (5, 0, 0, 0) and batch.state is BatchState.PROCESSING and not batch.open
    await drain(app)
    assert sorted(app.told) == [("ended", "b"), ("succeeded", "b")]
    after = await app.batch.get(batch.id)
    assert counts(after) == (5, 5, 0, 0) and after.state is BatchState.COMPLETED and after.ended_at is not None
    assert (after.name, after.meta, after.created_by) == ("five", {"for": "bob"}, "app")


async def test_success_comes_after_a_later_retry(app: Any) -> None:
    batch = await app.batch(
        [("WORK", {"n": 1}), ("WORK", {"n": -1})], on_complete=("ENDED", {}), on_success=("SUCCEEDED", {})
    )
    await drain(app)
    assert app.told == [("ended", "")] and (await app.batch.get(batch.id)).state is BatchState.FAILED
    own = await service(app)
    found = await own.failures(batch.id)
    assert sum(found.by_type.values()) == 1 and [cause.failed for cause in found.causes] == [1]
    app.broken.clear()
    begun = await own.retry_failed(batch.id, "mended")
    assert begun.matched == 1 and begun.approval is None
    await drive(await app.store(), "w", lambda: False)
    assert (await app.batch.get(batch.id)).state is BatchState.PROCESSING
    await drain(app)
    assert app.told == [("ended", ""), ("succeeded", "")]
    assert (await app.batch.get(batch.id)).state is BatchState.COMPLETED
    with pytest.raises(RedriveError, match="no item"):
        await own.retry_failed(batch.id)


@pytest.mark.parametrize("stream", ["list", "generator", "async"])
async def test_many_are_streamed(app: Any, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving, "PIECE", 10)
    monkeypatch.setattr(giving.in_pieces, "__defaults__", (10,))
    tasks: Any = [("WORK", {"n": n}) for n in range(35)]

    async def later() -> Any:
        for task in tasks:
            await asyncio.sleep(0)
            yield task

    given = {"list": tasks, "generator": (task for task in tasks), "async": later()}[stream]
    batch = await app.batch(given, on_complete=("ENDED", {}))
    assert batch.total == 35 and not batch.open
    await drain(app)
    assert counts(await app.batch.get(batch.id)) == (35, 35, 0, 0) and app.told == [("ended", "")]


async def test_it_ends_when_it_is_sealed(app: Any) -> None:
    async with app.batch(on_complete=("ENDED", {})) as batch:
        assert await batch.add([("WORK", {"n": 1}), ("WORK", {"n": 2})]) == 2
        assert await batch.add(("WORK", {"n": 3})) == 1
        await drain(app)
        now = await app.batch.get(batch.id)
        assert now.open and now.pending == 0 and app.told == [] and now.state is BatchState.PROCESSING
    await drain(app)
    assert app.told == [("ended", "")]
    with pytest.raises(BatchConflict, match="sealed"):
        await batch.add(("WORK", {"n": 4}))


async def test_an_exception_cancels_it_with_what_was_added(app: Any) -> None:
    with pytest.raises(RuntimeError):
        async with app.batch(key="k") as batch:
            await batch.add([("WORK", {"n": n}) for n in range(3)])
            raise RuntimeError("no")
    found = await app.batch.get(batch.id)
    assert found.state is BatchState.CANCELLED and counts(found) == (3, 0, 0, 3)
    assert found.key is None and "RuntimeError" in found.cancel_reason
    again = await app.batch([("WORK", {"n": 1})], key="k")
    assert again.id != batch.id and again.state is BatchState.PROCESSING


async def test_one_that_was_never_begun_leaves_nothing(app: Any) -> None:
    with pytest.raises(InvalidInput, match="task 1 of the batch"):
        await app.batch([("WORK", {"n": 1}), ("NO_SUCH_KIND", {})])
    assert (await (await service(app)).list()).items == []


async def test_an_empty_one_ends_at_once(app: Any) -> None:
    batch = await app.batch([], on_complete=("ENDED", {}), on_success=("SUCCEEDED", {}))
    assert batch.state is BatchState.COMPLETED and batch.ended_at is not None
    await drain(app)
    assert sorted(app.told) == [("ended", ""), ("succeeded", "")]


async def test_one_key_is_one_batch(app: Any) -> None:
    tasks = [("WORK", {"n": 1}), ("WORK", {"n": 2})]
    first = await app.batch(tasks, key="k", name="a")
    again = await app.batch(iter(tasks), key="k", name="a")
    assert again.id == first.id and again.total == 2
    async with app.batch(key="k", name="a") as batch:
        await batch.add(tasks)
    assert batch.id == first.id and (await app.batch.get(first.id)).total == 2
    for other, name in ((tasks[:1], "a"), (tasks[::-1], "a"), (tasks, "b")):
        with pytest.raises(BatchConflict, match="other content"):
            await app.batch(other, key="k", name=name)
    async with app.batch(key="open") as batch:
        await batch.add(tasks)
        with pytest.raises(BatchConflict, match="still being filled"):
            await app.batch(tasks, key="open")


async def test_two_with_one_key_at_the_same_time(app: Any) -> None:
    tasks = [("WORK", {"n": 1})]
    made = await asyncio.gather(*(app.batch(tasks, key="k") for _ in range(5)))
    assert len({batch.id for batch in made}) == 1
    assert len((await (await service(app)).list()).items) == 1


async def test_an_item_adds_to_its_own(app: Any) -> None:
    batch = await app.batch([("SPLIT", {"n": 4})], on_complete=("ENDED", {}))
    await drain(app)
    assert counts(await app.batch.get(batch.id)) == (5, 5, 0, 0) and app.told == [("ended", "")]


async def test_batches_nest(app: Any) -> None:
    async with app.batch(on_complete=("ENDED", {"batch": "outer"})) as outer:
        await outer.add(("WORK", {"n": 1}))
        await app.batch([("WORK", {"n": 2})], parent=outer, on_complete=("ENDED", {"batch": "inner"}))
        silent = await app.batch([("WORK", {"n": 3})], parent=outer)
    await drain(app)
    assert app.told == [("ended", "inner"), ("ended", "outer")]
    assert counts(await app.batch.get(outer.id)) == (3, 3, 0, 0)
    assert (await app.batch.get(silent.id)).state is BatchState.COMPLETED


async def test_cancel_is_one_operation(app: Any) -> None:
    own = await service(app)
    with pytest.raises(BatchCancelled):  # its maker is told when it seals what is cancelled by now
        async with app.batch(on_complete=("ENDED", {})) as batch:
            await batch.add([{"kind": "WORK", "payload": {"n": n}, "delay": 60.0} for n in range(4)])
            assert (await own.cancel(batch.id, dry_run=True)).matched == 4
            begun = await own.cancel(batch.id, "enough")
            with pytest.raises(BatchCancelled):
                await batch.add(("WORK", {"n": 9}))
            await drive(await app.store(), "w", lambda: False)
    found = await own.find(batch.id)
    assert found.state is BatchState.CANCELLED and counts(found) == (4, 0, 0, 4)
    assert (found.cancelled_by, found.cancel_reason, found.cancel_operation) == ("ann", "enough", begun.operation.id)
    with pytest.raises(RedriveError, match="is cancelled"):
        await own.cancel(batch.id)
    rows = await (await app.store()).audit(AuditFilter(bulk_id=begun.operation.id), limit=99)
    actions = {row.action for row in rows}
    assert {"BATCH_CANCEL", "OPERATION_START", "TASK_CANCEL_BATCH_ITEM", "TASK_CANCEL_BATCH_SUMMARY"} == actions
    await drain(app)
    assert app.told == [("ended", "")]  # all have ended, if not well


async def test_a_large_cancel_waits_for_a_second_operator(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = await app.batch([{"kind": "WORK", "payload": {"n": n}, "delay": 60.0} for n in range(3)])
    own = await service(app)
    monkeypatch.setattr(Policy, "alone", Rule(2))
    begun = await own.cancel(batch.id, "enough")
    assert begun.approval is not None
    asked = await own.find(batch.id)
    assert asked.asked and asked.state is BatchState.PROCESSING
    with pytest.raises(RedriveError, match="waits for a second operator"):
        await own.cancel(batch.id)
    store = await app.store()
    await mark_agreed(store)
    assert (await own.find(batch.id)).state is BatchState.PROCESSING
    await approvals.approve(store, begun.approval.id, actor="bob")
    await mark_agreed(store)
    await drive(store, "w", lambda: False)
    found = await own.find(batch.id)
    assert found.state is BatchState.CANCELLED and found.cancelled == 3


async def test_items_are_listed(app: Any) -> None:
    batch = await app.batch([("WORK", {"n": n}) for n in (1, -1, -2)])
    await drain(app)
    own = await service(app)
    assert len((await own.tasks(batch.id)).tasks) == 3
    failed = await own.tasks(batch.id, states=["failed"])
    assert len(failed.tasks) == 2 and {task.state for task in failed.tasks} == {State.FAILED}
    assert (await own.tasks(batch.id, kind="ENDED")).tasks == []
    [only] = (await own.tasks(batch.id, limit=1)).tasks
    assert len((await own.tasks(batch.id, before=only.id)).tasks) == 2


async def test_lists_by_state(app: Any) -> None:
    done = await app.batch([("WORK", {"n": 1})])
    bad = await app.batch([("WORK", {"n": -1})])
    await drain(app)
    waits = await app.batch([{"kind": "WORK", "payload": {"n": 1}, "delay": 60.0}])
    own = await service(app)
    assert [one.id for one in (await own.list()).items] == [waits.id, bad.id, done.id]
    assert [one.id for one in (await own.list(before=waits.id, limit=1)).items] == [bad.id]
    for state, batch in (("completed", done), ("failed", bad), ("processing", waits)):
        found = (await own.list(state=state)).items
        assert [one.id for one in found] == [batch.id] and found[0].state == state
    assert await own.unended(100) == 1
    with pytest.raises(InvalidInput, match="no state"):
        await own.list(state="odd")


async def test_without_await(app: Any) -> None:
    def plain() -> Any:
        made = app.sync.batch([("WORK", {"n": 1})], name="a")
        with app.sync.batch() as batch:
            assert batch.add([("WORK", {"n": 2}), ("WORK", {"n": 3})]) == 2
        with pytest.raises(KeyError), app.sync.batch() as other:
            other.add(("WORK", {"n": 4}))
            raise KeyError
        return made, app.sync.batch.get(batch.id), app.sync.batch.get(other.id)

    made, filled, given_up = await asyncio.to_thread(plain)
    assert made.total == 1 and (filled.total, filled.open) == (2, False) and given_up.state is BatchState.CANCELLED
