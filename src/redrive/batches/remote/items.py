"""The handler of items: starts those that were not, looks at the others, with as few calls as the provider allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive.batches.batch import FEATURE, BatchState
from redrive.batches.remote import spacing as rules
from redrive.batches.remote.lanes import BATCH_CANCELLED, BATCH_SETTLED
from redrive.batches.settings import BatchSettings
from redrive.kernel.outcome import Cancel
from redrive.kernel.payload import decode
from redrive.remote import ProviderError, RemoteItem

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.handlers.bulk import Item as BulkItem
    from redrive.remote import RemoteProvider


@dataclass(slots=True, frozen=True)
class Row:
    """An item's row, as far as its handler needs it."""

    id: str
    round: int
    job: str | None
    polls: int
    progress: float | None
    payload: Any
    age: float
    wanted: bool  # nobody has cancelled its batch
    settled: bool

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Row:
        return cls(
            f"{row['batch']}-{row['n']}",
            row["round"],
            row["job"],
            row["poll_count"],
            row["progress"],
            decode(row["payload"]),
            row["age"] or 0.0,
            not row["cancelled"],
            row["batch_state"] != BatchState.PROCESSING,
        )

    def key(self, retries: int) -> str:
        """Returns the key that the provider knows this start by: a retry after a crash has the same one, a new charge
        and a retry by an operator another."""
        return f"{self.id}:{self.round}" + (f":r{retries}" if retries else "")

    def seen(self, asked: bool) -> rules.Seen:
        assert self.job is not None
        return rules.Seen(self.job, self.polls, self.progress, self.age, asked)


class Items:
    """What is done with items of one provider."""

    def __init__(self, app: App, provider: str) -> None:
        self._app = app
        self._name = provider
        own = app.settings.of(BatchSettings)
        self._spacing = rules.Spacing(
            own.poll_first, own.poll_next, own.poll_later, own.max_poll_count, own.max_item_seconds
        )

    async def run(self, bulk: Bulk) -> None:
        """Takes each item a step further; each has an outcome of its own."""
        provider = self._app.provider_of(self._name)
        rows = await self._rows(bulk)
        new: list[tuple[BulkItem, Row]] = []
        begun: list[tuple[BulkItem, Row]] = []
        for item in bulk:
            row = rows.get(str(item.id))
            if row is not None and row.settled:
                item.answer(Cancel(BATCH_SETTLED))
            elif row is None or (row.job is None and not row.wanted):
                item.answer(Cancel(BATCH_CANCELLED))
            else:
                (new if row.job is None else begun).append((item, row))
        await asyncio.gather(self._poll(provider, begun), *(self._start(provider, *one) for one in new))

    async def _rows(self, bulk: Bulk) -> dict[str, Row]:
        store = await self._app.at(bulk[0].context.connection).store()
        ids = json.dumps([str(item.id) for item in bulk])
        return {str(row["task"]): Row.of(row) for row in await store.feature_rows(FEATURE, "items_of", ids)}

    async def _start(self, provider: RemoteProvider, item: BulkItem, row: Row) -> None:
        try:
            key = row.key(item.context.task.replay_count)
            job = await provider.start(RemoteItem(row.id, row.payload), key)
        except ProviderError as error:
            tries = (item.context.state or {}).get("tries", 0)
            item.answer(rules.not_started(error, tries, row.age, self._spacing))
        else:
            item.answer(rules.started(job, self._spacing))

    async def _poll(self, provider: RemoteProvider, begun: list[tuple[BulkItem, Row]]) -> None:
        if not begun:
            return
        asked = dict(zip([item.id for item, _ in begun], await self._ask_to_end(provider, begun), strict=True))
        found: Mapping[str, Any]
        try:
            found = await provider.poll([row.job for _, row in begun if row.job is not None])
        except ProviderError as error:
            found = {row.job: error for _, row in begun if row.job is not None}
        for item, row in begun:
            assert row.job is not None
            item.answer(rules.polled(row.seen(asked[item.id]), found.get(row.job), self._spacing))

    async def _ask_to_end(self, provider: RemoteProvider, begun: list[tuple[BulkItem, Row]]) -> list[bool]:
        """Cancels jobs of cancelled batches at the provider, if it can, once each; returns whether that was done."""
        return await asyncio.gather(*(self._cancel(provider, item, row) for item, row in begun))

    async def _cancel(self, provider: RemoteProvider, item: BulkItem, row: Row) -> bool:
        if row.wanted or row.job is None or not provider.can_cancel:
            return False
        if (item.context.state or {}).get("asked"):
            return True
        try:
            await provider.cancel(row.job)
        except ProviderError:
            return False  # it is asked again with the next poll
        return True
