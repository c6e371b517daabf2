"""``app.remote_batches``: what the application itself does with remote batches; nobody's role is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

from redrive.batches.batch import PAGE
from redrive.batches.batch_input import BatchRequest
from redrive.batches.remote.actions import RemoteBatchActions
from redrive.batches.remote.create_batch import Payloads
from redrive.batches.remote.model import BatchItem, RemoteBatch
from redrive.feature import App, Caller, Role

APP = Caller("app", Role.OPERATOR)


class RemoteBatches:
    def __init__(self, app: App) -> None:
        self._app = app

    async def create(
        self,
        items: Payloads,
        *,
        provider: str,
        account: str | None = None,
        price: int = 0,
        key: str | None = None,
        name: str | None = None,
        meta: Any = None,
        scope: str | None = None,
        webhook_url: str | None = None,
        max_in_flight: int | None = None,
        on: str | None = None,
    ) -> RemoteBatch:
        """Make a batch of jobs at a provider, one for each item (any JSON value). When this returns, it is durable; its
        money is frozen when a worker begins it. The same ``key`` with the same content is the same batch.
        ``max_in_flight``: so many of its jobs run at once."""
        wanted = BatchRequest(
            provider=provider,
            account=account,
            price=price,
            key=key,
            name=name,
            meta=meta,
            scope=scope,
            webhook_url=webhook_url,
            max_in_flight=max_in_flight,
        )
        return await (await self._own(on)).create(items, wanted)

    async def get(self, batch: UUID | str, *, on: str | None = None) -> RemoteBatch:
        """Returns a batch as it is now."""
        return await (await self._own(on)).show(batch)

    async def items(
        self, batch: UUID | str, *, states: Sequence[str] = (), on: str | None = None
    ) -> AsyncIterator[BatchItem]:
        """Yields the items of a batch in the order in which they were given, with their results. ``states`` leaves out
        others. ``app.sync.remote_batches.items(…)`` returns them as a list."""
        own, after = await self._own(on), 0
        while page := await own.items(batch, states=states, after=after, limit=PAGE):
            for item in page:
                yield item
            after = page[-1].n

    async def reconcile(
        self, batch: UUID | str | None = None, reason: str | None = None, *, on: str | None = None
    ) -> UUID:
        """Have a worker ask providers about items that ended without their word, of one batch or of all; returns the
        task that does. Nothing is charged."""
        found = await (await self._own(on)).reconcile(batch, reason)
        assert found.task is not None
        return found.task

    async def charge(
        self, batch: UUID | str, reason: str, items: Sequence[int] = (), *, on: str | None = None
    ) -> RemoteBatch:
        """Charge for items of a settled batch, or for all, that ended here and whose jobs ran all the same, as
        ``reconcile`` or a late call found. They are completed from then on, and the customer is told; each is charged
        once."""
        own = await self._own(on)
        await own.charge(batch, reason, items)
        return await own.show(batch)

    async def cancel(self, batch: UUID | str, reason: str | None = None, *, on: str | None = None) -> RemoteBatch:
        """Cancel a batch: what was not started is released, what runs is polled to its end."""
        return await (await self._own(on)).cancel(batch, reason)

    async def retry_failed(self, batch: UUID | str, reason: str | None = None, *, on: str | None = None) -> RemoteBatch:
        """Start the failed items of a settled batch again, as a new charge."""
        return await (await self._own(on)).retry_failed(batch, reason)

    async def _own(self, on: str | None) -> RemoteBatchActions:
        return (await self._app.operator(APP, on)).of(RemoteBatchActions)
