"""What is kept about a person: in the store itself, and in the tables of features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from uuid import UUID

from redrive.kernel.erase import BELONGING, PERSONAL, place_of, subject_of
from redrive.kernel.ports.store import Store
from redrive.kernel.task import State


async def count_personal(store: Store, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
    """Returns how much is kept about a scope, or about tasks, by place; tasks that run now are counted apart."""
    if scope is not None:
        task_ids = [*task_ids, *await find_belonging(store, scope)]
    found = Counter(await store.personal(scope, task_ids))
    for name in store.features.erasing:
        rows = await store.sql.feature_rows(name, PERSONAL, subject_of(scope, task_ids))
        found[place_of(name)] += rows[0]["n"]
    return dict(found)


async def find_erasable(store: Store, scope: str, limit: int) -> list[UUID]:
    """Returns tasks of a scope that do not run: live, finished, or known by a dead letter only; also those that belong
    to something of the scope without carrying it, which features know."""
    found = await store.erasable(scope, limit)
    others = [one for one in await find_belonging(store, scope, limit, found) if one not in found]
    known = await store.statuses(others) if others else {}
    return [
        *found,
        *(one for one in others if one in known and not (known[one].erased or known[one].state is State.RUNNING)),
    ]


async def find_belonging(store: Store, scope: str, limit: int | None = None, own: Collection[UUID] = ()) -> list[UUID]:
    """Returns tasks, also running ones, that belong to something of a scope and are not erased, so far as features know
    them, and tasks that belong to those or to these of its ``own``."""
    found = dict[UUID, None]()
    for of_scope in (True, False):
        subject = subject_of(scope, (), rows=limit) if of_scope else subject_of(None, [*found, *own], rows=limit)
        for name in store.features.belonging:
            rows = await store.sql.feature_rows(name, BELONGING, subject)
            found |= {UUID(str(row["id"])): None for row in rows}
    return list(found)
