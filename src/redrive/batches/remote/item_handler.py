"""The handler of items: starts those that were not, looks at the others, with as few calls as the provider allows."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from redrive.batches.names import CALLBACK_PATH, FEATURE, item_kind
from redrive.batches.remote import polling_policy
from redrive.batches.remote.in_flight import Start, take_places
from redrive.batches.remote.item_task import BATCH_CANCELLED, BATCH_SETTLED, ItemMemo, ItemRow
from redrive.batches.remote.passes import Pass, Passes
from redrive.batches.settings import BatchSettings
from redrive.kernel.outcome import Cancel, Retry, StopReason
from redrive.remote import ProviderError, RemoteItem
from redrive.remote.callbacks import Callback, Callbacks

if TYPE_CHECKING:
    from redrive.app import App
    from redrive.handlers.bulk import Bulk
    from redrive.handlers.bulk import Item as BulkItem
    from redrive.kernel.ports.store import Store
    from redrive.remote import RemoteProvider

REFUSED_FOR_NOW = (429, 503)  # the provider answers that it did not take the request
# What clients raise when there was no connection over which a request could have gone; by name, so that none of them
# has to be installed.
UNCONNECTED = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ClientConnectorError",
        "NewConnectionError",
        "ConnectTimeoutError",
    }
)
MOST_CAUSES = 10
PAYLOAD_ERASED = "its payload was erased"


def may_have_started(error: ProviderError) -> bool:
    """Returns whether a start that failed so may have reached the provider all the same."""
    if error.status_code in REFUSED_FOR_NOW:
        return False
    found: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if found is None:
            break
        if isinstance(found, ConnectionRefusedError | socket.gaierror) or type(found).__name__ in UNCONNECTED:
            return False
        found = found.__cause__ or found.__context__
    return True


class ItemHandler:
    """What is done with items of one provider."""

    def __init__(self, app: App, provider: str) -> None:
        self._app = app
        self._name = provider
        self._callbacks = Callbacks.of(app.settings, CALLBACK_PATH)
        self._policy = app.settings.of(BatchSettings)

    async def run(self, bulk: Bulk) -> None:
        """Takes each item a step further; each has an outcome of its own. What goes wrong on our side ends none: it is
        tried again, until the provider has spoken or the item's time is over."""
        try:
            await self._run(bulk)
        except Exception as error:
            raise Retry(f"{type(error).__name__}: {error}") from error

    async def _run(self, bulk: Bulk) -> None:
        provider = self._app.provider_of(self._name)
        own = self._app.of(Passes).of(bulk[0].context.worker_id)
        store = await self._app.at(bulk[0].context.connection).store()
        rows = await _rows(store, bulk)
        new: list[tuple[BulkItem, ItemRow]] = []
        begun: list[tuple[BulkItem, ItemRow]] = []
        for item in bulk:
            row = rows.get(str(item.id))
            if row is not None and row.settled:
                item.answer(Cancel(BATCH_SETTLED))
            elif row is not None and row.shared_with is not None:
                item.answer(polling_policy.shared(row.job, row.shared_with))
            elif row is None or (row.job is None and not row.wanted and not _unsure(item, row)):
                item.answer(Cancel(BATCH_CANCELLED))
            elif row.erased:
                item.answer(Cancel(PAYLOAD_ERASED))
            elif own is not None and not _allowed(own, item, row):
                item.answer(polling_policy.put_off(_memo(item), unsure=row.job is None and _unsure(item, row)))
            else:
                (new if row.job is None else begun).append((item, row))
        new = await self._with_places(store, new)
        starts = await asyncio.gather(*(self._start(provider, *one) for one in new), self._poll(provider, begun))
        await self._not_started(provider, store, [one for one in starts if isinstance(one, _Failed)])
        if own is not None:
            own.started += sum(one is True for one in starts)

    async def _with_places(self, store: Store, new: list[tuple[BulkItem, ItemRow]]) -> list[tuple[BulkItem, ItemRow]]:
        """Returns those that may be started now, as far as the number of jobs in flight is bounded; the others wait.
        That they are about to be is in the store before their requests go out: whatever becomes of this worker."""
        starts = [
            Start(row.batch, row.n, row.round, row.key(item.context.task.replay_count))
            for item, row in new
            if not row.in_flight
        ]
        if not starts:
            return new
        bounded = self._policy.max_in_flight is not None or any(row.bounded for _, row in new)
        taken = await take_places(store, self._name, self._policy.max_in_flight, starts, bounded=bounded)
        found = []
        for item, row in new:
            if row.in_flight or (row.batch, row.n) in taken:
                found.append((item, row))
            else:
                item.answer(polling_policy.no_place(_memo(item), self._policy, unsure=_unsure(item, row)))
        return found

    async def _start(self, provider: RemoteProvider, item: BulkItem, row: ItemRow) -> bool | _Failed:
        key = row.key(item.context.task.replay_count)
        try:
            if not row.wanted and provider.can_find:  # what nobody wants any more is not started again, only found
                found = await provider.find(key)
                item.answer(Cancel(BATCH_CANCELLED) if found is None else polling_policy.started(found, self._policy))
                return False
            wanted = RemoteItem(row.id, row.payload, self._address(item, row))
            job = await provider.start(wanted, key, within=self._policy.start_seconds)
        except ProviderError as error:
            return _Failed(item, row, error)
        except asyncio.CancelledError:
            # Its worker stops and hands it back, and gives the attempt back too: nothing else would tell the next one
            # that the request may have gone out.
            if item.context.stop_reason is not StopReason.TIMEOUT:
                item.answer(polling_policy.interrupted(_memo(item)))
            raise
        item.answer(polling_policy.started(job, self._policy))
        return True

    async def _not_started(self, provider: RemoteProvider, store: Store, failed: list[_Failed]) -> None:
        """Decides what follows from starts that failed, and keeps in mind whether they may have come about."""
        if not failed:
            return
        kind = item_kind(self._name)
        shut = [row for row in await store.circuits() if row.open and kind in row.kinds]
        probes = {(row.probe, row.token) for row in shut}
        for item, row, error in failed:
            known = _unsure(item, row)
            task = item.context.task
            start = polling_policy.FailedStart(
                error,
                row,
                _memo(item),
                unsure=known or may_have_started(error),
                up=not shut,
                probe=row.in_chain and (task.id, task.token) in probes,
            )
            if not row.wanted and not error.transient and not known:
                item.answer(Cancel(BATCH_CANCELLED))
            elif not start.final(self._policy):
                item.answer(polling_policy.start_again(start, self._policy))
            else:
                item.answer(await self._last_look(provider, item, row, start))

    async def _last_look(
        self, provider: RemoteProvider, item: BulkItem, row: ItemRow, start: polling_policy.FailedStart
    ) -> Any:
        """Returns how an item goes on whose start is not repeated: with its job, where the provider finds one by its
        key; else it ends, and if a start may have come about nobody knows how."""
        unsure = start.unsure if start.error.transient else _unsure(item, row)
        if not unsure or not provider.can_find:
            return polling_policy.not_started(start, self._policy, unknown=unsure)
        try:
            job = await provider.find(row.key(item.context.task.replay_count))
        except ProviderError:
            return polling_policy.not_started(start, self._policy, unknown=True)
        if job is not None:
            return polling_policy.started(job, self._policy)
        return Cancel(BATCH_CANCELLED) if not row.wanted else polling_policy.not_started(start, self._policy)

    def _address(self, item: BulkItem, row: ItemRow) -> str | None:
        """Returns where the provider may say that this start has ended; None where nobody can reach us."""
        if self._callbacks is None:
            return None
        where = item.context.connection
        url = self._callbacks.url(Callback(row.id, row.round), row.now)
        return url if where == self._app.at(None).name else f"{url}?connection={quote(where, safe='')}"

    async def _poll(self, provider: RemoteProvider, begun: list[tuple[BulkItem, ItemRow]]) -> None:
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
                memo = replace(_memo(item), asked=asked[item.id])
                item.answer(polling_policy.polled(row, memo, found.get(row.job), self._policy))
            except Exception as error:  # whatever is wrong with one is not the others', who may be another customer's
                item.answer(Retry(f"{type(error).__name__}: {error}"))

    async def _ask_to_end(self, provider: RemoteProvider, begun: list[tuple[BulkItem, ItemRow]]) -> list[bool]:
        """Cancels jobs of cancelled batches at the provider, if it can, once each; returns whether that was done."""
        return await asyncio.gather(*(self._cancel(provider, item, row) for item, row in begun))

    async def _cancel(self, provider: RemoteProvider, item: BulkItem, row: ItemRow) -> bool:
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


class _Failed(NamedTuple):
    """A start that failed."""

    item: BulkItem
    row: ItemRow
    error: ProviderError


async def _rows(store: Store, bulk: Bulk) -> dict[str, ItemRow]:
    ids = json.dumps([str(item.id) for item in bulk])
    return {str(row["task"]): ItemRow.of(row) for row in await store.sql.feature_rows(FEATURE, "items_of", ids)}


def _unsure(item: BulkItem, row: ItemRow) -> bool:
    """Returns whether an item without a job may have one all the same: a second attempt follows a worker that died."""
    return row.start_key is not None or item.context.task.attempt > 1 or _memo(item).unsure


def _allowed(own: Pass, item: BulkItem, row: ItemRow) -> bool:
    return own.may_start(item.id, row.batch) if row.job is None else own.may_poll(item.id)
