"""A batch as one of its items sees it, or the task that follows its end: ``app.batch.of(ctx)``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from redrive.batches.add_items import add_items, check_open, way_of
from redrive.batches.batch import BATCH, FEATURE, Batch, BatchUnknown, of_row
from redrive.batches.follow_up import followed_by
from redrive.batches.items import Item
from redrive.batches.read_items import items_of
from redrive.batches.remote.model import batch_of
from redrive.batches.task_input import Digest, Given, Many, in_pieces, members
from redrive.errors import InvalidInput
from redrive.feature import App, Commit, Store
from redrive.ops import actions
from redrive.ops.inspect import parse_id


async def find_batch(store: Store, batch: UUID | str) -> Batch:
    """Returns a batch with its counts as they are now."""
    wanted = parse_id(str(batch), BATCH)
    rows = await store.sql.feature_rows(FEATURE, "by_id", str(wanted))
    if not rows:
        raise BatchUnknown(f"there is no batch {wanted}", hint="redrive batch list names the latest")
    return of_row(rows[0])


async def find_either(store: Store, batch: UUID) -> Batch:
    """Returns a batch of either sort, with its counts as they are now."""
    rows = await store.sql.feature_rows(FEATURE, "remote_shown", str(batch))
    return batch_of(rows[0]) if rows else await find_batch(store, batch)


class OwnBatch:
    """A batch as one of its items sees it, or what follows its end."""

    def __init__(self, app: App, batch: UUID | None, task: UUID, on: str | None) -> None:
        self._batch = batch  # None: the one that the task follows
        self._task = task
        self._app = app
        self._on = on

    @property
    def id(self) -> UUID:
        """Its id; in what follows its end once ``await batch.show()`` has found it."""
        if self._batch is None:
            raise InvalidInput("which batch has ended is not known yet", hint="await batch.show() first: it has the id")
        return self._batch

    async def add(self, tasks: Many | Given) -> int:
        """Adds items while the own task runs, whose arrival comes last. Returns how many."""
        digest, way = Digest(), way_of(self._app, None, self._on)
        store = await way.store()
        batch = await self._find(store)
        async for piece in in_pieces(tasks):
            scope = await check_open(store, batch)
            found = members(self._app.registry, piece, batch, digest, scope)
            await add_items(way, Commit(enqueues=found), batch, set())
            try:
                await check_open(store, batch)
            except Exception:
                await actions.cancel(store, [task.id for task in found], actor="app")
                raise
        return digest.count

    async def show(self) -> Batch:
        """Returns it with its counts as they are now."""
        store = await self._app.at(self._on).store()
        return await find_batch(store, await self._find(store))

    async def items(self, states: Sequence[str] = ()) -> AsyncIterator[Item]:
        """Yields its items with their results, the latest first."""
        store = await self._app.at(self._on).store()
        async for item in items_of(store, await self._find(store), states):
            yield item

    async def _find(self, store: Store) -> UUID:
        if self._batch is None:
            self._batch = await followed_by(store, self._task)
        return self._batch
