"""Adds items to a batch, on every way that an application has into its store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE, BatchCancelled, BatchConflict
from redrive.feature import App, Applied, Audit, Commit, Store
from redrive.handlers.registry import Registry
from redrive.kernel.erase import ERASED

Keys = Mapping[UUID, str]  # of tasks that were there before: the keys by which they were found


@dataclass(slots=True, frozen=True)
class Way:
    """How what a batch consists of gets into the store. ``own``: inside a transaction of the caller's. ``known``: it is
    clear where that is; else the first items say it, by their routes."""

    registry: Registry
    apply: Callable[[Commit], Awaitable[Applied]]
    store: Callable[[], Awaitable[Store]]
    own: bool = False
    known: bool = True


def way_of(app: App, connection: Any, on: str | None) -> Way:
    """Returns the way out of an application."""
    return Way(
        app.registry,
        lambda commit: app.apply(commit, connection=connection, on=on),
        lambda: app.at(on).store(),
        connection is not None,
        on is not None or len(app.connections) == 1,
    )


class KeysTaken(BatchConflict):
    """Keys of items name tasks that were there before; some of these may be items of the same batch."""

    def __init__(self, found: Keys) -> None:
        task, key = next(iter(found.items()))
        super().__init__(
            f"the idempotency_key {key!r} of an item names task {task}, which is no item of this batch: it would not be"
            " waited for, nor counted",
            hint="leave the key out, or use another one; a key of the whole batch is key=",
        )
        self.found = found


async def add_items(way: Way, commit: Commit, batch: UUID, before: set[UUID]) -> None:
    """Applies a Commit whose new tasks are items of a batch; nothing of it if a key names a task that is none. A key
    that names an item of the same batch adds nothing: so a handler that runs again adds what it added before.
    ``before``: those with keys that were added in the caller's transaction."""
    commit = replace(commit, all_or_none=any(task.idempotency_key is not None for task in commit.enqueues))
    if not commit.all_or_none:
        await way.apply(commit)
    elif way.own:
        # In the caller's transaction nothing can be read or undone here: it is rolled back by who gets the error.
        _refuse(commit, await way.apply(commit), before)
        before.update(task.id for task in commit.enqueues if task.idempotency_key is not None)
    else:
        await _add_keyed(way, commit, batch)


async def _add_keyed(way: Way, commit: Commit, batch: UUID) -> None:
    items = set[UUID]()

    def conclude(done: Applied) -> list[Audit]:
        _refuse(commit, done, items)
        return []

    while True:
        try:
            await way.apply(replace(commit, conclusion=conclude))
        except KeysTaken as taken:  # and nothing has landed
            tasks = await (await way.store()).get_many(taken.found)
            own = {task.id for task in tasks.values() if task.join_id == batch}
            if elsewhere := {task: key for task, key in taken.found.items() if task not in own}:
                raise KeysTaken(elsewhere) from None
            items |= own
        else:
            return


def _refuse(commit: Commit, done: Applied, items: set[UUID]) -> None:
    """Refuses what landed if keys name tasks that are none of these, nor new."""
    known = items | {task.id for task in commit.enqueues}
    pairs = zip(commit.enqueues, done.enqueued, strict=True)
    if found := {now.id: str(task.idempotency_key) for task, now in pairs if now.id not in known}:
        raise KeysTaken(found)


async def check_open(store: Store, batch: UUID) -> str | None:
    """Returns whom a batch is about; refuses items of one that was cancelled."""
    rows = await store.sql.feature_rows(FEATURE, "by_id", str(batch))
    if rows and rows[0]["cancelled_at"] is not None:
        by = rows[0]["cancelled_by"]
        raise BatchCancelled(f"batch {batch} was cancelled{f' by {by}' if by else ''}: it takes no more items")
    scope: str | None = rows[0]["scope"] if rows else None
    return None if scope is None or scope.startswith(f"{ERASED}:") else scope
