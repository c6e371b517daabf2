"""What follows the end of a batch knows the batch, and its items with their results."""

from __future__ import annotations

from typing import Any

import pytest

from redrive import Context
from redrive.batches.batch_builder import following
from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.reads import Query
from redrive.kernel.task import NewTask
from tests.batches.conftest import drain


async def test_the_task_that_follows_reads_the_results(app: Any) -> None:
    """A chord: the parts return something, and what follows adds it up."""
    seen: dict[str, Any] = {}

    @app.task("ADD", max_attempts=1)
    async def add(ctx: Context, a: int, b: int) -> int:
        if a < 0:
            raise ValueError("below zero")
        return a + b

    @app.task("TOTAL")
    async def total(ctx: Context) -> int:
        batch = app.batch.of(ctx)
        shown = await batch.show()
        seen["batch"], seen["id"], seen["name"] = shown.id, batch.id, shown.name
        seen["failed"] = [item.error_message async for item in batch.items(["failed"])]
        return sum([item.result async for item in batch.items(["completed"])])

    @app.task("TOTAL_PLAIN")
    def plain(ctx: Context) -> int:
        return sum(item.result for item in app.sync.batch.items(ctx, states=["completed"]))

    made = await app.batch([add.new(1, 2), add.new(3, 4), add.new(-1, 0)], on_complete=total.new(), name="May")
    plainly = await app.batch([add.new(5, 6)], on_success=plain.new())
    await drain(app)
    assert seen == {"batch": made.id, "id": made.id, "name": "May", "failed": ["ValueError: below zero"]}
    found = [item async for item in app.batch.items(made.id)]
    assert sorted(item.result for item in found if item.state == "completed") == [3, 7] and len(found) == 3
    results = {task.kind: task.result for task in await _tasks(app) if task.kind.startswith("TOTAL")}
    assert results == {"TOTAL": 10, "TOTAL_PLAIN": 11}
    assert (await app.batch.get(plainly.id)).completed == 1


async def test_what_follows_an_inner_batch_is_an_item_of_the_outer_one(app: Any) -> None:
    seen: list[Any] = []

    @app.task("INNER_ENDED")
    async def ended(ctx: Context) -> None:
        await app.batch.of(ctx).add([("WORK", {"n": 1})])  # to the outer one
        seen.append((app.batch.of(ctx).id, (await app.batch.of(ctx, followed=True).show()).id))

    async with app.batch(name="outer") as outer:
        inner = await app.batch([("WORK", {"n": 1})], on_complete=ended.new(), parent=outer)
    await drain(app)
    assert seen == [(outer.id, inner.id)]
    assert (await app.batch.get(outer.id)).completed == 2


async def test_a_task_of_no_batch_is_told_so(app: Any) -> None:
    said: list[str] = []

    @app.task("ALONE")
    async def alone(ctx: Context) -> None:
        batch = app.batch.of(ctx)
        with pytest.raises(InvalidInput, match="not known yet"):
            assert batch.id
        with pytest.raises(InvalidInput, match="is an item of no batch, and follows the end of none") as refused:
            await batch.show()
        said.append(refused.value.message)

    task = await alone.enqueue()
    await drain(app)
    assert said == [f"task {task.id} is an item of no batch, and follows the end of none"]
    with pytest.raises(Exception, match="there is no batch"):
        [item async for item in app.batch.items(task.id)]


def test_facts_of_others_stay_as_they_are() -> None:
    given = NewTask(new_id(), "SETTLE", "default", None, feature="shop", facts='{"order": 1}')
    assert following(given, new_id()) is given


async def _tasks(app: Any) -> list[Any]:
    return await (await app.store()).find(Query())
