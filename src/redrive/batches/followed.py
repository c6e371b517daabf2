"""What follows the end of a batch knows that batch, and everybody the items of one: for ``app.batch``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import fields, replace
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.items import Item, item_of_remote, item_of_task, task_states
from redrive.batches.remote.model import item_of
from redrive.errors import InvalidInput
from redrive.feature import Store, encode
from redrive.kernel.reads import Query
from redrive.kernel.task import NewTask, Task

PIECE = 500  # items that are read at once


def following(task: NewTask, batch: UUID) -> NewTask:
    """Returns a task that follows a batch, with the id of it in its row. Facts of another feature stay as they are."""
    if task.feature is not None or task.facts is not None:
        return task
    return replace(task, facts=encode({"batch": str(batch)}, "facts"))


async def followed_by(store: Store, task_id: UUID) -> UUID:
    """Returns the batch whose end a task follows."""
    task = (await store.get_many([task_id], documents=0)).get(task_id)
    batch = task.facts.get("batch") if task is not None and task.feature is None and task.facts else None
    if not isinstance(batch, str):
        raise InvalidInput(
            f"task {task_id} is an item of no batch, and follows the end of none",
            hint="items of app.batch(tasks) have one, and what its on_complete= and on_success= name",
        )
    return UUID(batch)


async def items_of(store: Store, batch: UUID, states: Sequence[str]) -> AsyncIterator[Item]:
    """Yields the items of a batch of either sort, with whole payloads and results: tasks the latest first, jobs in the
    order in which they were given."""
    wanted = task_states(states)
    rows = await store.feature_rows(FEATURE, "sort_of", str(batch))
    if rows and rows[0]["remote"]:
        async for job in _jobs(store, batch, states):
            yield job
        return
    before: UUID | None = None
    while True:
        found = await store.find(Query(wanted, join=str(batch), limit=PIECE, before=before))
        for task in found:
            yield item_of_task({name: getattr(task, name) for name in _TASK})
        if len(found) < PIECE:
            return
        before = found[-1].id


async def _jobs(store: Store, batch: UUID, states: Sequence[str]) -> AsyncIterator[Item]:
    wanted, after = (encode(list(states), "states") if states else None), 0
    while True:
        rows = await store.feature_rows(FEATURE, "items_listed", str(batch), after, wanted, None, PIECE)
        found = [item_of(row) for row in rows]
        for item in found:
            yield item_of_remote(item)
        if len(found) < PIECE:
            return
        after = found[-1].n


_TASK = tuple(one.name for one in fields(Task))
