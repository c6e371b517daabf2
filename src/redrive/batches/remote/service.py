"""Remote batches as people with roles see them: create, show, list, items, failures, cancel, retry what failed."""

from __future__ import annotations

import builtins
import difflib
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from redrive.batches.batch import FEATURE, BatchConflict, BatchState
from redrive.batches.remote import phases
from redrive.batches.remote.creating import MAX_META_BYTES, MOST_PRICE, Bounds, Draft, Payloads, Plan
from redrive.batches.remote.model import (
    ITEM_STATES,
    BatchItem,
    Counts,
    RemoteBatch,
    count_items,
    find_remote,
    item_of,
    remote_of,
)
from redrive.batches.remote.names import item_kind
from redrive.batches.settings import BatchSettings
from redrive.feature import Commit, InvalidInput, RedriveError, Role, Service, encode
from redrive.kernel.classify import FailureType
from redrive.kernel.task import check_int, check_text
from redrive.ledger.accounts import check_account, unknown
from redrive.ops.inspect import parse_id
from redrive.remote import ProviderUnknown
from redrive.webhooks.guard import check_url
from redrive.webhooks.rows import origin

TRIES = 5  # where somebody else changes the same batch


@dataclass(slots=True, frozen=True)
class Progress:
    """A batch, how many of its items are in which state, and why some failed."""

    batch: RemoteBatch
    counts: Counts
    by_type: dict[str, int]
    by_code: dict[str, int]


class RemoteBatchService(Service):
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
    ) -> RemoteBatch:
        """Makes a batch of all items, or of none; the same key with the same content is the same batch."""
        who = self._session.may(Role.OPERATOR)
        self._check_provider(provider)
        await self._check_payer(account, price)
        if webhook_url is not None:
            check_url(webhook_url)
        plan = Plan(
            provider,
            account,
            price,
            who,
            check_text(key, "key"),
            check_text(name, "name"),
            None if meta is None else encode(meta, "meta", MAX_META_BYTES),
            check_text(scope, "scope"),
            webhook_url,
        )
        own = self._session.settings.of(BatchSettings)
        made, _ = await Draft(self._store, plan, Bounds(own.max_items, own.max_bytes)).fill(items)
        return made

    async def list(
        self, *, state: str | None = None, limit: int = 50, before: UUID | str | None = None
    ) -> builtins.list[RemoteBatch]:
        """Returns remote batches, the latest first; ``before`` continues behind the last id of a page."""
        self._session.may(Role.VIEWER)
        check_int(limit, "limit", 1, 500)
        if state is not None and state not in builtins.list(BatchState):
            raise InvalidInput(f"{state!r} is no state of a batch", hint=f"one of: {', '.join(BatchState)}")
        last = None if before is None else str(parse_id(str(before)))
        rows = await self._store.feature_rows(FEATURE, "remote_listed", last, state, limit)
        return [self._seen(remote_of(row)) for row in rows]

    async def show(self, batch: UUID | str) -> RemoteBatch:
        self._session.may(Role.VIEWER)
        return self._seen(await find_remote(self._store, parse_id(str(batch))))

    def _seen(self, batch: RemoteBatch) -> RemoteBatch:
        """Returns what the caller may see of a batch: its meta and the path of its webhook may be secrets."""
        if self._session.caller.role >= Role.OPERATOR:
            return batch
        return replace(batch, meta=None, webhook_url=batch.webhook_url and origin(batch.webhook_url))

    async def progress(self, batch: UUID | str) -> Progress:
        """Returns a batch with the counts of its items."""
        found = await self.show(batch)
        types, codes = dict[str, int](), dict[str, int]()
        for row in await self._store.feature_rows(FEATURE, "remote_failures", str(found.id)):
            kind, code = row["failure_type"] or "unknown", row["error_code"] or "unknown"
            types[kind] = types.get(kind, 0) + row["n"]
            codes[code] = codes.get(code, 0) + row["n"]
        return Progress(found, await count_items(self._store, found), types, codes)

    async def items(
        self,
        batch: UUID | str,
        *,
        state: str | None = None,
        failure_type: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> builtins.list[BatchItem]:
        """Returns items in the order in which they were given, those behind ``after``. Payloads and results may be
        personal: operators see them, viewers do not."""
        found = await self.show(batch)
        check_int(limit, "limit", 1, 1000)
        check_int(after, "after", 0, 2**31 - 1)
        _one_of(state, ITEM_STATES, "state of an item")
        _one_of(failure_type, tuple(FailureType), "failure type")
        rows = await self._store.feature_rows(FEATURE, "items_listed", str(found.id), after, state, failure_type, limit)
        shown = self._session.caller.role >= Role.OPERATOR
        hidden = {} if shown else {"payload": None, "result": None, "error_message": None}
        return [item_of({**row, **hidden}) for row in rows]

    async def cancel(self, batch: UUID | str, reason: str | None = None) -> RemoteBatch:
        """Cancels what was not started, and releases its money. What runs at the provider is cancelled there if it can,
        polled to its end, and paid for if it succeeded."""
        who = self._session.may(Role.OPERATOR)
        check_text(reason, "reason")

        def change(found: RemoteBatch) -> Commit:
            if found.settled or found.cancelled_at is not None:
                state = found.state if found.settled else "being cancelled"
                raise BatchConflict(f"batch {found.id} is {state}", hint="only one that has not ended is cancelled")
            return phases.cancelled(found, who, reason)

        return await self._change(batch, change)

    async def retry_failed(self, batch: UUID | str, reason: str | None = None) -> RemoteBatch:
        """Starts the failed items of a settled batch again, as a new charge."""
        who = self._session.may(Role.OPERATOR)
        check_text(reason, "reason")
        found = await self.show(batch)
        failed = (await count_items(self._store, found)).states["failed"]

        def change(now: RemoteBatch) -> Commit:
            if not now.settled or now.version != found.version:
                raise BatchConflict(
                    f"batch {now.id} is {now.state}", hint="failed items are started again when it is settled"
                )
            if not failed:
                raise BatchConflict(f"no item of batch {now.id} is failed", hint="there is nothing to retry")
            return phases.retried(now, failed, who, reason)

        return await self._change(batch, change)

    async def _change(self, batch: UUID | str, change: Any) -> RemoteBatch:
        """Applies a change to a batch as it is; where somebody else was quicker, to what it is then."""
        for left in reversed(range(TRIES)):
            found = await self.show(batch)
            commit = change(found)
            try:
                await self._store.apply(commit)
                break
            except RedriveError:
                if not left or (await self.show(batch)).version == found.version:
                    raise
        return await self.show(batch)

    def _check_provider(self, provider: str) -> None:
        start = item_kind("")
        known = [kind.removeprefix(start).lower() for kind in self._session.registry.handlers if kind.startswith(start)]
        if provider in known:
            return
        close = difflib.get_close_matches(str(provider), known, 1)
        there = f"there are: {', '.join(known)}" if known else "say it in redrive.toml as [providers.NAME]"
        raise ProviderUnknown(
            f"there is no provider {provider!r}", hint=f"did you mean {close[0]}?" if close else there
        )

    async def _check_payer(self, account: str | None, price: int) -> None:
        check_int(price, "price", 0, MOST_PRICE)
        if account is None and price:
            raise InvalidInput("a price needs an account that pays", hint="name the account, or leave out the price")
        if account is not None and not await self._store.feature_rows("ledger", "account", check_account(account)):
            raise unknown(account)


def _one_of(given: str | None, known: tuple[str, ...], what: str) -> None:
    if given is not None and given not in known:
        raise InvalidInput(f"{given!r} is no {what}", hint=f"one of: {', '.join(known)}")
