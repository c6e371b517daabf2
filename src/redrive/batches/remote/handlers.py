"""Handlers of the steps of a remote batch, each of several batches at once: dispatch, release, settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from redrive.batches.batch import BatchState, BatchUnknown
from redrive.batches.remote import phases
from redrive.batches.remote.model import RemoteBatch, count_items, find_remote
from redrive.batches.settings import BatchSettings
from redrive.errors import InvalidInput
from redrive.ledger.accounts import available

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.kernel.ports.store import Store

Step = Callable[["Store", RemoteBatch], Awaitable[Any]]


class Steps:
    """What an application's workers do with its remote batches."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._settings = app.settings.of(BatchSettings)

    async def dispatch(self, bulk: Bulk) -> None:
        """Freezes the money of batches and begins them; those whose account has too little fail."""
        await self._each(bulk, BatchState.QUEUED, self._dispatch)

    async def settle(self, bulk: Bulk) -> None:
        """Settles batches all of whose items have ended."""
        await self._each(bulk, BatchState.PROCESSING, self._settle)

    async def release(self, bulk: Bulk) -> None:
        """Gives back the price of cancelled items whose turn never came."""
        await self._each(bulk, BatchState.PROCESSING, self._release)

    async def _each(self, bulk: Bulk, state: BatchState, step: Step) -> None:
        """Takes the step with each batch that is in this state and round; what is further already is done. What goes
        wrong with one is its own trouble."""
        for item in bulk:
            try:
                store = await self._app.at(item.context.connection).store()
                batch = await find_remote(store, item.payload["batch"])
                fits = batch.round == item.payload["round"] and batch.state is state
                item.answer(await step(store, batch) if fits else {"state": batch.state})
            except BatchUnknown:
                item.answer(None)  # its row is gone by retention or by hand: there is nothing to do
            except Exception as error:
                item.answer(error)

    async def _dispatch(self, store: Store, batch: RemoteBatch) -> dict[str, Any]:
        short = await self._too_little(store, batch)
        if short is None:
            try:
                await store.apply(phases.dispatched(batch, self._settings.max_start))
                return {"state": BatchState.PROCESSING}
            except InvalidInput:  # perhaps somebody else spent it in between
                short = await self._too_little(store, batch)
                if short is None:
                    raise
        await store.apply(phases.unaffordable(batch, short))
        return {"state": BatchState.FAILED}

    async def _too_little(self, store: Store, batch: RemoteBatch) -> int | None:
        """Returns what the account of a batch has where that is less than it needs."""
        if batch.account is None or not batch.price:
            return None
        has = await store.balance(available(batch.account))
        return has if has < batch.price * batch.in_round else None

    async def _settle(self, store: Store, batch: RemoteBatch) -> dict[str, Any]:
        counts = await count_items(store, batch)
        await store.apply(phases.settled(batch, counts))
        return dict(counts.states)

    async def _release(self, store: Store, batch: RemoteBatch) -> dict[str, Any]:
        counts = await count_items(store, batch)
        if counts.unreleased:
            await store.apply(phases.released(batch, counts.unreleased))
        return {"released": counts.unreleased}
