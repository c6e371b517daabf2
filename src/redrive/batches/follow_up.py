"""The tasks that follow the end of a batch: each has the id of its batch in its row, for ``app.batch.of(ctx)``."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.feature import Store, encode
from redrive.kernel.task import NewTask


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
