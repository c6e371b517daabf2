"""Remote batches as people with roles see them: one batch, its progress and its pace, its items. Besides, how they are
made, and how providers are asked again about them."""

from __future__ import annotations

import builtins
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.batches.batch import BATCH, STRETCHES, BatchConflict, Reconciling, check_item_states, without_words
from redrive.batches.batch_input import BatchRequest
from redrive.batches.names import ENDED_ITEMS, FEATURE, ItemState, item_kind
from redrive.batches.remote.create_batch import MOST_PRICE, Draft, Payloads
from redrive.batches.remote.model import (
    NOTHING_TO_RETRY,
    BatchItem,
    Counts,
    RemoteBatch,
    ToRetry,
    count_items,
    find_either,
    find_remote,
    item_of,
    items_to_retry,
    no_items,
)
from redrive.batches.remote.reconcile import accept, reconcile_task
from redrive.batches.remote.wait_reasons import remote_waits_for
from redrive.batches.settings import BatchSettings
from redrive.feature import InvalidInput, Role, Service, Store
from redrive.kernel.classify import FailureType
from redrive.kernel.task import State, check_int, check_text
from redrive.ledger.accounts import check_account, unknown
from redrive.ledger.service import check_reason
from redrive.ops.inspect import parse_id
from redrive.ops.why import Reason
from redrive.remote.checked import unknown_provider
from redrive.webhooks.address_guard import check_direct, origin
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.settings import WebhookSettings

MOST_IN_FLIGHT = 1_000_000
LATELY = 5  # stretches: the last sixth of its time says how fast it is now
SHORTEST_S = 30.0  # of a round: before that there is no pace
MOST_ITEMS = 1001  # a page of 1,000, and one more that says whether it goes on


@dataclass(slots=True, frozen=True)
class History:
    """Items that ended in each of thirty equal stretches of a round; ``failed`` by type."""

    seconds: float  # of all stretches
    completed: list[int]
    failed: Mapping[str, list[int]]

    @property
    def per_second(self) -> float:
        """Returns how many items have ended in a second, lately."""
        ended = [self.completed, *self.failed.values()]
        return sum(sum(one[-LATELY:]) for one in ended) / (self.seconds * LATELY / STRETCHES)

    def seconds_left(self, items: int) -> float | None:
        """Returns how long so many items take at this pace; None where it is too early to say, or nothing ends."""
        pace = self.per_second if self.seconds >= SHORTEST_S else 0.0
        return items / pace if pace else None


async def item_history(store: Store, batch: RemoteBatch, now: datetime) -> History | None:
    """Returns the history of the last round of a batch; None while it has not begun."""
    if batch.dispatched_at is None:
        return None
    since = batch.dispatched_at.timestamp()
    seconds = max((batch.settled_at or now).timestamp() - since, 1.0)
    rows = await store.sql.feature_rows(FEATURE, "remote_ended", str(batch.id), since, seconds / STRETCHES)
    completed, failed = [0] * STRETCHES, dict[str, list[int]]()
    for row in rows:
        counted = completed
        if row["state"] == ItemState.FAILED:
            counted = failed.setdefault(row["failure_type"] or "unknown", [0] * STRETCHES)
        counted[min(max(int(row["stretch"]), 0), STRETCHES - 1)] += row["n"]
    return History(seconds, completed, failed)


@dataclass(slots=True, frozen=True)
class Progress:
    """A batch, how many of its items are in which state, and why some failed."""

    batch: RemoteBatch
    counts: Counts
    by_type: dict[str, int]
    by_code: dict[str, int]
    unknown: int = 0  # items that ended without the provider's word
    uncharged: int = 0  # items that ended here, and ran all the same
    retry: ToRetry = NOTHING_TO_RETRY  # what a retry of the failed ones is about


class RemoteBatchService(Service):
    """What everybody may look at, without what may be secret or personal where they are no operators; and how batches
    come about."""

    async def show(self, batch: UUID | str) -> RemoteBatch:
        self._session.may(Role.VIEWER)
        return self._seen(await find_remote(self._store, parse_id(str(batch), BATCH)))

    def _seen(self, batch: RemoteBatch) -> RemoteBatch:
        """Returns what the caller may see of a batch: its name, key and meta are others' words, and the path of
        its webhook may be a secret."""
        if self._session.caller.role >= Role.OPERATOR:
            return batch
        return replace(without_words(batch), webhook_url=batch.webhook_url and origin(batch.webhook_url))

    async def progress(self, batch: UUID | str) -> Progress:
        """Returns a batch with the counts of its items."""
        found = await self.show(batch)
        types, codes = Counter[str](), Counter[str]()
        for row in await self._store.sql.feature_rows(FEATURE, "remote_failures", str(found.id)):
            types[row["failure_type"] or "unknown"] += row["n"]
            codes[row["error_code"] or "unknown"] += row["n"]
        shown = await find_either(self._store, found.id)
        counts, part = await count_items(self._store, found), shown.remote
        if found.pruned_at is not None:  # some items are gone: what was counted when it was settled stays
            kept = {state: getattr(shown, state) for state in ENDED_ITEMS}
            counts = replace(counts, states=no_items() | kept)
        unknown, uncharged = (0, 0) if part is None else (part.unknown, part.uncharged)
        return Progress(found, counts, types, codes, unknown, uncharged, await items_to_retry(self._store, found.id))

    async def to_retry(self, batch: UUID) -> ToRetry:
        """Returns what a retry of its failed items is about."""
        self._session.may(Role.VIEWER)
        return await items_to_retry(self._store, batch)

    async def unknown(self, batch: UUID | str) -> int:
        """Returns how many of its items ended without the provider's word."""
        self._session.may(Role.VIEWER)
        [row] = await self._store.sql.feature_rows(FEATURE, "unknown_items", str(batch))
        return int(row["n"])

    async def waits_for(self, batch: UUID | str) -> builtins.list[Reason]:
        """Returns what it waits for, and each of its items that has not ended."""
        words = self._session.caller.role >= Role.OPERATOR
        return await remote_waits_for(self._store, await self.show(batch), words=words)

    async def history(self, batch: RemoteBatch) -> History | None:
        """Returns how the items of its last round ended over time; None while that has not begun."""
        self._session.may(Role.VIEWER)
        return await item_history(self._store, batch, await self._store.now())

    async def item_of_task(self, task: UUID) -> BatchItem | None:
        """Returns the item that a task is for, without what is personal; None where it has another task since."""
        self._session.may(Role.VIEWER)
        rows = await self._store.sql.feature_rows(FEATURE, "item_of_task", str(task))
        return item_of(rows[0]) if rows else None

    async def items(
        self,
        batch: UUID | str,
        *,
        states: Sequence[str] = (),
        failure_type: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> builtins.list[BatchItem]:
        """Returns items in the order in which they were given, those behind ``after``. Payloads and results may be
        personal: operators see them, viewers do not."""
        found = await self.show(batch)
        check_int(limit, "limit", 1, MOST_ITEMS)
        check_int(after, "after", 0, 2**31 - 1)
        if failure_type is not None and failure_type not in list(FailureType):
            raise InvalidInput(f"{failure_type!r} is no failure type", hint=f"one of: {', '.join(FailureType)}")
        check_item_states(states)
        wanted = json.dumps(list(states)) if states else None
        rows = await self._store.sql.feature_rows(
            FEATURE, "items_listed", str(found.id), after, wanted, failure_type, limit
        )
        shown = self._session.caller.role >= Role.OPERATOR
        hidden = {} if shown else {"payload": None, "result": None, "error_message": None}
        return [item_of({**row, **hidden}) for row in rows]

    async def create(self, items: Payloads, wanted: BatchRequest) -> RemoteBatch:
        """Makes a batch of all items, or of none; the same key with the same content is the same batch."""
        who = self._session.may(Role.OPERATOR)
        price, settings = wanted.price or 0, self._session.settings
        self._check_provider(str(wanted.provider))
        await self._check_payer(wanted.account, price)
        if wanted.webhook_url is not None:
            own_account = wanted.account or DEFAULT_ACCOUNT
            await check_direct(self._store, settings.of(WebhookSettings), own_account, wanted.webhook_url)
        for text in ("key", "name", "scope"):
            check_text(getattr(wanted, text), text)
        if wanted.max_in_flight is not None:
            check_int(wanted.max_in_flight, "max_in_flight", 1, MOST_IN_FLIGHT)
        return await Draft(self._store, replace(wanted, price=price), who, settings.of(BatchSettings)).fill(items)

    async def reconcile(self, batch: UUID | str | None = None, reason: str | None = None) -> Reconciling:
        """Has a worker ask providers about the items of a batch, or of all, that ended without their word."""
        who = self._session.may(Role.OPERATOR)
        check_text(reason, "reason")
        found = None if batch is None else await self.show(batch)
        if found is not None:
            found.check_kept()
        [row] = await self._store.sql.feature_rows(FEATURE, "unknown_items", None if found is None else str(found.id))
        task, commit = reconcile_task(None if found is None else found.id, who, reason)
        await self._store.apply(commit)
        return Reconciling(task.id, row["marked"])

    async def accept_unknown(self, batch: UUID | str, reason: str) -> int:
        """Accepts that nobody will ever know how items of a settled batch ended, whose provider cannot be asked: nobody
        is warned of them any more, and they keep their mark. Returns how many there were, up to ten thousand."""
        who, why = self._session.may(Role.OPERATOR), check_reason(reason)
        found = await self.show(batch)
        found.check_kept()
        if not found.settled:
            raise BatchConflict(f"batch {found.id} is {found.state}", hint="the provider is asked when its items end")
        [row] = await self._store.sql.feature_rows(FEATURE, "unknown_items", str(found.id))
        if row["n"]:
            await self._store.apply(accept(found, row["n"], who, why))
        return int(row["n"])

    async def reconciled(self, task: UUID) -> dict[str, Any] | None:
        """Returns what came of it; None while a worker is still to ask, or asks."""
        self._session.may(Role.OPERATOR)
        found = (await self._store.get_many([task])).get(task)
        if found is None or found.state in (State.FAILED, State.CANCELLED):
            raise InvalidInput(f"task {task} has not asked to the end", hint=f"redrive show {task} says why")
        return dict(found.result) if found.state is State.COMPLETED else None

    def _check_provider(self, provider: str) -> None:
        start = item_kind("")
        known = [kind.removeprefix(start).lower() for kind in self._session.registry.handlers if kind.startswith(start)]
        if provider not in known:
            raise unknown_provider(provider, known)

    async def _check_payer(self, account: str | None, price: int) -> None:
        check_int(price, "price", 0, MOST_PRICE)
        if account is None and price:
            raise InvalidInput("a price needs an account that pays", hint="name the account, or leave out the price")
        if account is not None and not await self._store.sql.feature_rows("ledger", "account", check_account(account)):
            raise unknown(account)
