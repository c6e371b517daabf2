"""Reads all items of a batch of either sort, piece by piece: for ``app.batch``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import fields
from uuid import UUID

from redrive.batches.batch import FEATURE
from redrive.batches.items import Item, item_of_remote, item_of_task, task_states
from redrive.batches.remote.model import item_of
from redrive.feature import Store, encode
from redrive.kernel.reads import Query
from redrive.kernel.task import Task

PIECE = 500  # items that are read at once


async def items_of(store: Store, batch: UUID, states: Sequence[str]) -> AsyncIterator[Item]:
    """Yields the items of a batch of either sort, with whole payloads and results: tasks the latest first, jobs in the
    order in which they were given."""
    wanted = task_states(states)
    rows = await store.sql.feature_rows(FEATURE, "sort_of", str(batch))
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
        rows = await store.sql.feature_rows(FEATURE, "items_listed", str(batch), after, wanted, None, PIECE)
        found = [item_of(row) for row in rows]
        for item in found:
            yield item_of_remote(item)
        if len(found) < PIECE:
            return
        after = found[-1].n


_TASK = tuple(one.name for one in fields(Task))
