"""Finds out beforehand which tasks a retry would leave alone because their feature withholds them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from uuid import UUID

from redrive.kernel.ports.store import Store
from redrive.kernel.retry_guard import Withheld, by_feature
from redrive.kernel.task import Task


async def withheld(store: Store, tasks: Iterable[Task]) -> dict[UUID, Withheld]:
    """Returns those of these tasks that nobody may retry, as of now: one statement for each feature that has some."""
    known = [(task.id, task.feature, task.facts or {}) for task in tasks]
    found: dict[UUID, Withheld] = {}
    for feature, asked in by_feature(store.features.guards, known).items():
        guard = store.features.guards[feature]
        found |= guard.withheld(await store.sql.feature_rows(feature, guard.statement, json.dumps(asked)))
    return found


async def withheld_of(store: Store, ids: Sequence[UUID]) -> dict[UUID, Withheld]:
    """Returns the same of tasks by their ids."""
    if not store.features.guards or not ids:
        return {}
    statuses = await store.statuses(ids)
    guarded = [one.id for one in statuses.values() if one.feature in store.features.guards]
    return await withheld(store, (await store.get_many(guarded, documents=0)).values()) if guarded else {}
