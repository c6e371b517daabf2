"""The handler of items: starts those that were not, looks at the others, with as few calls as the provider allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redrive.batches.batch import FEATURE, BatchState
from redrive.batches.remote import polling_policy
from redrive.batches.remote.item_memo import ItemMemo
from redrive.batches.remote.lanes import BATCH_CANCELLED, BATCH_SETTLED
from redrive.batches.remote.names import CALLBACK_PATH
from redrive.batches.remote.passes import Pass, Passes
from redrive.batches.remote.uncertain_starts import may_have_started
from redrive.batches.settings import BatchSettings
from redrive.kernel.outcome import Cancel, StopReason
from redrive.kernel.payload import decode
from redrive.remote import ProviderError, RemoteItem
from redrive.remote.callbacks import Callback, Callbacks

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.handlers.bulk import Item as BulkItem
    from redrive.remote import RemoteProvider

PAYLOAD_ERASED = "its payload was erased"


@dataclass(slots=True, frozen=True)
class Row:
    """An item's row, as far as its handler needs it."""

    id: str
    batch: str
    round: int
    job: str | None
    polls: int
    progress: float | None
    payload: Any
    erased: bool  # it is not started, and has no payload any more
    age: float
    wanted: bool  # nobody has cancelled its batch
    settled: bool
    shared_with: int | None  # the item whose job it is: a provider gave the same id to both
    called: bool  # its provider has said that it has ended, and nobody has looked since
    now: float  # by the store's clock

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Row:
        return cls(
            f"{row['batch']}-{row['n']}",
            str(row["batch"]),
            row["round"],
            row["job"],
            row["poll_count"],
            row["progress"],
            decode(row["payload"]),
            row["job"] is None and row["payload"] is None,
            row["age"] or 0.0,
            not row["cancelled"],
            row["batch_state"] != BatchState.PROCESSING,
            row["shared_with"],
            row["called"] == 1,
            float(row["now"]),
        )

    def key(self, retries: int) -> str:
        """Returns the key that the provider knows this start by: a retry after a crash has the same one, a new charge
        and a retry by an operator another."""
        return f"{self.id}:{self.round}" + (f":r{retries}" if retries else "")

    def seen(self, asked: bool) -> polling_policy.Seen:
        assert self.job is not None
        return polling_policy.Seen(self.job, self.polls, self.progress, self.age, asked, self.called)


class ItemHandler:
    """What is done with items of one provider."""

    def __init__(self, app: App, provider: str) -> None:
        self._app = app
        self._name = provider
        self._callbacks = Callbacks.of(app.settings, CALLBACK_PATH)
        own = app.settings.of(BatchSettings)
        self._start_seconds = own.start_seconds
        self._policy = polling_policy.PollingPolicy(
            own.poll_first, own.poll_next, own.poll_later, own.max_poll_count, own.max_item_seconds
        )

    async def run(self, bulk: Bulk) -> None:
        """Takes each item a step further; each has an outcome of its own."""
        provider = self._app.provider_of(self._name)
        own = self._app.of(Passes).of(bulk[0].context.worker_id)
        rows = await self._rows(bulk)
        new: list[tuple[BulkItem, Row]] = []
        begun: list[tuple[BulkItem, Row]] = []
        for item in bulk:
            row = rows.get(str(item.id))
            if row is not None and row.settled:
                item.answer(Cancel(BATCH_SETTLED))
            elif row is not None and row.shared_with is not None:
                item.answer(polling_policy.shared(row.job, row.shared_with))
            elif row is None or (row.job is None and not row.wanted and not _unsure(item)):
                item.answer(Cancel(BATCH_CANCELLED))
            elif row.erased:
                item.answer(Cancel(PAYLOAD_ERASED))
            elif own is not None and not _allowed(own, item, row):
                item.answer(polling_policy.put_off(_memo(item)))
            else:
                (new if row.job is None else begun).append((item, row))
        starts = await asyncio.gather(*(self._start(provider, *one) for one in new), self._poll(provider, begun))
        if own is not None:
            own.started += sum(map(bool, starts))

    async def _rows(self, bulk: Bulk) -> dict[str, Row]:
        store = await self._app.at(bulk[0].context.connection).store()
        ids = json.dumps([str(item.id) for item in bulk])
        return {str(row["task"]): Row.of(row) for row in await store.feature_rows(FEATURE, "items_of", ids)}

    async def _start(self, provider: RemoteProvider, item: BulkItem, row: Row) -> bool:
        try:
            key = row.key(item.context.task.replay_count)
            wanted = RemoteItem(row.id, row.payload, self._address(item, row))
            job = await provider.start(wanted, key, within=self._start_seconds)
        except ProviderError as error:
            item.answer(self._not_started(item, row, error))
            return False
        except asyncio.CancelledError:
            # Its worker stops and hands it back, and gives the attempt back too: nothing else would tell the next one
            # that the request may have gone out.
            if item.context.stop_reason is not StopReason.TIMEOUT:
                item.answer(polling_policy.interrupted(_memo(item)))
            raise
        item.answer(polling_policy.started(job, self._policy))
        return True

    def _not_started(self, item: BulkItem, row: Row, error: ProviderError) -> Any:
        """Returns what follows from a start that failed, and keeps in mind whether it may have come about."""
        if not row.wanted and not error.transient:
            return Cancel(BATCH_CANCELLED)
        unsure = _unsure(item) or may_have_started(error)
        return polling_policy.not_started(error, _memo(item), row.age, self._policy, unsure=unsure)

    def _address(self, item: BulkItem, row: Row) -> str | None:
        """Returns where the provider may say that this start has ended; None where nobody can reach us."""
        if self._callbacks is None:
            return None
        where = item.context.connection
        url = self._callbacks.url(Callback(row.id, row.round), row.now)
        return url if where == self._app.at(None).name else f"{url}?connection={quote(where, safe='')}"

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
            try:
                item.answer(polling_policy.polled(row.seen(asked[item.id]), found.get(row.job), self._policy))
            except Exception as error:  # whatever is wrong with one is not the others', who may be another customer's
                item.answer(error)

    async def _ask_to_end(self, provider: RemoteProvider, begun: list[tuple[BulkItem, Row]]) -> list[bool]:
        """Cancels jobs of cancelled batches at the provider, if it can, once each; returns whether that was done."""
        return await asyncio.gather(*(self._cancel(provider, item, row) for item, row in begun))

    async def _cancel(self, provider: RemoteProvider, item: BulkItem, row: Row) -> bool:
        if row.wanted or row.job is None or not provider.can_cancel:
            return False
        if _memo(item).asked:
            return True
        try:
            await provider.cancel(row.job)
        except ProviderError:
            return False  # it is asked again with the next poll
        return True


def _memo(item: BulkItem) -> ItemMemo:
    return ItemMemo.of(item.context.state)


def _unsure(item: BulkItem) -> bool:
    """Returns whether an item without a job may have one all the same: a second attempt follows a worker that died."""
    return item.context.task.attempt > 1 or _memo(item).unsure


def _allowed(own: Pass, item: BulkItem, row: Row) -> bool:
    return own.may_start(item.id, row.batch) if row.job is None else own.may_poll(item.id)
