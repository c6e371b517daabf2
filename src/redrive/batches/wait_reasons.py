"""Says what keeps the items of a batch from going on: a pause, an open circuit, no worker that would take them."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.feature import State, Store, Task
from redrive.kernel.reads import Query
from redrive.ops.why import Reason, why

# Reasons that time alone does not cure. What waits for its turn, its next poll or a limit is on its way.
LASTING = ("paused", "circuit", "no_worker", "unknown_feature", "handed_back", "unhandled")
WAITING = (State.QUEUED, State.DELAYED, State.PAUSED)
LOOKED_AT = 50  # waiting tasks; those of one kind and queue wait for the same


async def tasks_wait_for(store: Store, join: object) -> list[Reason]:
    """Returns what the waiting tasks of a join wait for, by the latest of them."""
    return await reasons_of(store, await store.find(Query(WAITING, join=str(join), limit=LOOKED_AT, documents=0)))


async def reasons_of(store: Store, tasks: Sequence[Task]) -> list[Reason]:
    """Returns the lasting reasons of these tasks, each once."""
    alike = {(task.kind, task.queue, task.group): task for task in tasks}
    found = [reason for task in alike.values() for reason in await why(store, task) if reason.code in LASTING]
    return list({reason.text: reason for reason in found}.values())
