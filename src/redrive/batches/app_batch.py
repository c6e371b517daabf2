"""``app.batch``: makes batches, for async and ordinary code, and lets an item add to its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from redrive.batches.batch import BATCH, Batch
from redrive.batches.batch_builder import NewBatch, add_items, check_open, followed_by, plan, way_of
from redrive.batches.batch_input import Digest, Given, Many, in_pieces, members
from redrive.batches.items import Item, items_of
from redrive.batches.remote.actions import RemoteBatchActions
from redrive.batches.remote.application import APP
from redrive.batches.remote.model import find_batch, find_either
from redrive.errors import InvalidInput
from redrive.feature import App, Commit, Context, Store, new_id
from redrive.features import load
from redrive.ops import actions
from redrive.ops.inspect import parse_id

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


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


class Batches:
    """``app.batch(…)``; typed code writes ``app.of(Batches)(…)``."""

    def __init__(self, app: App) -> None:
        self._app = app

    def __call__(
        self,
        tasks: Many | None = None,
        *,
        on_success: Given | None = None,
        on_complete: Given | None = None,
        key: str | None = None,
        meta: Any = None,
        name: str | None = None,
        scope: str | None = None,
        parent: UUID | Batch | NewBatch | OwnBatch | None = None,
        connection: Any = None,
        on: str | None = None,
    ) -> NewBatch:
        """A new batch: ``batch = await app.batch(tasks, on_complete=…)``, or ``async with app.batch(…) as batch:`` and
        ``await batch.add(…)`` inside, which seals it at the end of the block, and cancels it where that raises.

        ``tasks`` is any iterable, also an asynchronous one, of ``send.new(…)``, ``(kind, payload)`` or dicts of
        ``enqueue``'s arguments. ``on_complete`` is enqueued once, when every item has ended, ``on_success`` once, when
        every item has completed, be it after later retries. ``key``: the same one again is the batch that is there.
        ``parent``: a batch of which this one's end is an item. ``connection``: it is part of that transaction.
        """
        batch = new_id()
        what = plan(
            self._app.registry,
            on_success=on_success,
            on_complete=on_complete,
            key=key,
            meta=meta,
            name=name,
            scope=scope,
            parent=parent if isinstance(parent, UUID) or parent is None else parent.id,
            batch=batch,
        )
        return NewBatch(way_of(self._app, connection, on), batch, what, tasks)

    def of(self, ctx: Context, *, followed: bool = False) -> OwnBatch:
        """Returns the batch of a handler's own task: the one that it is an item of, which it may add to until it ends
        itself; in an ``on_complete`` or ``on_success`` the one whose end it follows. ``followed=True`` is for a task
        that is both, the ``on_complete`` of an inner batch."""
        own = None if followed else ctx.task.join
        return OwnBatch(self._app, own, ctx.task_id, ctx.connection if len(self._app.connections) > 1 else None)

    async def get(self, batch: UUID | str | Context | OwnBatch, *, on: str | None = None) -> Batch:
        """Returns a batch of either sort, with its counts as they are now; ``remote`` of one of jobs has the rest.
        ``batch`` is its id, or the context of a handler: ``of(ctx)``."""
        if isinstance(batch, Context | OwnBatch):
            return await self._own(batch).show()
        return await find_either(await self._app.at(on).store(), parse_id(str(batch), BATCH))

    async def items(
        self, batch: UUID | str | Context | OwnBatch, *, states: Sequence[str] = (), on: str | None = None
    ) -> AsyncIterator[Item]:
        """Yields the items of a batch with their results: tasks the latest first, jobs at a provider in their order.
        ``states`` leaves out others. ``app.sync.batch.items(…)`` returns them as a list."""
        if isinstance(batch, Context | OwnBatch):
            found = self._own(batch).items(states)
        else:
            store, wanted = await self._app.at(on).store(), parse_id(str(batch), BATCH)
            await find_either(store, wanted)  # refuses one that nobody knows
            found = items_of(store, wanted, states)
        async for item in found:
            yield item

    async def cancel(self, batch: UUID | str, reason: str | None = None, *, on: str | None = None) -> Batch:
        """Cancel what has not ended, of a batch of either sort, and return it as it is then. Tasks that wait are
        cancelled, those that run are asked to stop; at a provider what was not started is released, the rest polled to
        its end. Of more tasks than ``REDRIVE_APPROVALS_ABOVE`` an operator has to agree first (``asked``)."""
        found = await self.get(batch, on=on)
        await (await self._service(found, on)).cancel(found.id, reason)
        return await self.get(found.id, on=on)

    async def retry_failed(self, batch: UUID | str, reason: str | None = None, *, on: str | None = None) -> Batch:
        """Retry the items that are failed now, of a batch of either sort, and return it as it is then: tasks as one
        operation, which the workers carry out; jobs at a provider as a new charge, when the batch is settled. Of more
        tasks than ``REDRIVE_APPROVALS_ABOVE`` an operator has to agree first."""
        found = await self.get(batch, on=on)
        await (await self._service(found, on)).retry_failed(found.id, reason)
        return await self.get(found.id, on=on)

    async def _service(self, batch: Batch, on: str | None) -> Any:
        """Returns what acts on a batch of its sort, for the application."""
        both = "redrive.batches.batch_service:BatchService"  # which makes batches by this module
        return (await self._app.operator(APP, on)).of(RemoteBatchActions if batch.remote is not None else load(both))

    def _own(self, batch: Context | OwnBatch) -> OwnBatch:
        return batch if isinstance(batch, OwnBatch) else self.of(batch)

    def without_await(self, run: Run[Any], *args: Any, **kwargs: Any) -> Batch | SyncBatch:
        """``app.sync.batch(…)``: made at once where its tasks are given, else to be used with ``with``."""
        made = self(*args, **kwargs)
        return SyncBatch(made, run) if made.given is None else run(made.made())


class SyncBatch:
    """The same for ordinary code: ``with app.sync.batch(…) as batch: batch.add(…)``."""

    def __init__(self, made: NewBatch, run: Run[Any]) -> None:
        self._made = made
        self._run = run
        self.id = made.id

    def add(self, tasks: Many | Given) -> int:
        added: int = self._run(self._made.add(tasks))
        return added

    def __enter__(self) -> SyncBatch:
        self._run(self._made.__aenter__())
        self.id = self._made.id
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._made.__aexit__(kind, error, trace))
