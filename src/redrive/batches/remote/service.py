"""Remote batches as people with roles act on them: create, cancel, retry what failed, reconcile, charge for what ran
all the same."""

from __future__ import annotations

import difflib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from redrive.batches.batch import BatchConflict
from redrive.batches.names import FEATURE, ItemState, item_kind
from redrive.batches.remote import commits
from redrive.batches.remote.create_batch import MAX_META_BYTES, MOST_PRICE, Bounds, Draft, Payloads, Plan
from redrive.batches.remote.model import NOTHING_TO_RETRY, RemoteBatch, count_items, items_to_retry
from redrive.batches.remote.reads import RemoteBatchReads
from redrive.batches.remote.reconcile import accept, reconcile_task
from redrive.batches.settings import BatchSettings
from redrive.batches.views import Reconciling
from redrive.errors import Overdrawn, StoreError
from redrive.feature import (
    Audit,
    Commit,
    InvalidInput,
    Land,
    RedriveError,
    Role,
    Store,
    encode,
)
from redrive.ids import new_id
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import TASKS_PER_PIECE, Forget, Operation
from redrive.kernel.task import State, check_int, check_text
from redrive.ledger.accounts import check_account, unknown
from redrive.ledger.movements import explained
from redrive.ledger.service import check_reason
from redrive.ledger.settings import LedgerSettings
from redrive.ledger.views import account_of
from redrive.ops import actions
from redrive.remote import ProviderUnknown
from redrive.webhooks.address_guard import check_direct
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.settings import WebhookSettings

Change = Callable[[RemoteBatch], Awaitable[Commit]]
MOST_IN_FLIGHT = 1_000_000
MOST_CHARGED = 1_000  # items, at once
TRIES = 5  # where somebody else changes the same batch
LAST_FAILURE = 2**62  # all of them are meant: none of that round can fail again


class RemoteBatchService(RemoteBatchReads):
    """What everybody may look at, and what operators do."""

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
    ) -> RemoteBatch:
        """Makes a batch of all items, or of none; the same key with the same content is the same batch."""
        who = self._session.may(Role.OPERATOR)
        self._check_provider(provider)
        await self._check_payer(account, price)
        if webhook_url is not None:
            own_account = account or DEFAULT_ACCOUNT
            await check_direct(self._store, self._session.settings.of(WebhookSettings), own_account, webhook_url)
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
            None if max_in_flight is None else check_int(max_in_flight, "max_in_flight", 1, MOST_IN_FLIGHT),
        )
        own = self._session.settings.of(BatchSettings)
        made, _ = await Draft(self._store, plan, Bounds(own.max_items, own.max_bytes)).fill(items)
        return made

    async def cancel(
        self, batch: UUID | str, reason: str | None = None, *, by: str | None = None, land: Land | None = None
    ) -> RemoteBatch:
        """Cancels what was not started, and releases its money. What runs at the provider is cancelled there if it can,
        polled to its end, and paid for if it succeeded. ``by``: who asked for it, where the caller agrees; ``land``
        applies it together with more."""
        agrees = self._session.may(Role.OPERATOR)
        who = agrees if by is None else by
        check_text(reason, "reason")

        async def change(found: RemoteBatch) -> Commit:
            if found.settled or found.cancelled_at is not None:
                state = found.state if found.settled else "being cancelled"
                raise BatchConflict(f"batch {found.id} is {state}", hint="only one that has not ended is cancelled")
            return commits.cancel(found, who, reason, await count_items(self._store, found))

        return await self._change(batch, change, land)

    async def retry_failed(
        self, batch: UUID | str, reason: str | None = None, *, by: str | None = None, land: Land | None = None
    ) -> RemoteBatch:
        """Starts the failed items of a settled batch again, as a new charge; not where the account has too little, and
        not those whose jobs ran all the same, or may (``ToRetry``)."""
        agrees = self._session.may(Role.OPERATOR)
        who = agrees if by is None else by
        actions.check_reason(reason)
        found = await self.show(batch)
        old = await put_away(self._store, found, who)
        seen = NOTHING_TO_RETRY

        async def change(now: RemoteBatch) -> Commit:
            nonlocal seen
            now.check_kept()
            if not now.settled or now.version != found.version:
                raise BatchConflict(
                    f"batch {now.id} is {now.state}", hint="failed items are started again when it is settled"
                )
            seen = await items_to_retry(self._store, now.id)
            if not seen.failed:
                raise BatchConflict(f"no item of batch {now.id} is failed", hint="there is nothing to retry")
            if not seen.matched:
                raise BatchConflict(
                    f"no failed item of batch {now.id} can be started again", hint="; ".join(seen.notes(now.id))
                )
            return commits.retry(now, seen.matched, who, reason, old)

        try:
            return await self._change(batch, change, land)
        except Overdrawn as error:
            wanted = replace(found, round=found.round + 1, in_round=seen.matched)
            raise await self._too_little(error, wanted) from error

    async def charge(
        self,
        batch: UUID | str,
        reason: str,
        items: Sequence[int] = (),
        *,
        by: str | None = None,
        land: Land | None = None,
    ) -> int:
        """Charges for items, or for all, that ended here and whose jobs ran all the same, as the provider said
        afterwards: they are completed from then on, and the customer is told. Each is charged once; returns how many
        were now."""
        agrees = self._session.may(Role.OPERATOR)
        who, why = agrees if by is None else by, check_reason(reason)
        wanted = 0

        async def change(found: RemoteBatch) -> Commit:
            nonlocal wanted
            ran = await self.ran(found.id, items)
            wanted = len(ran)
            if not ran:
                return Commit()
            return commits.charge(found, ran, who, why, await count_items(self._store, found))

        try:
            await self._change(batch, change, land)
            return wanted
        except Overdrawn as error:
            found = await self.show(batch)
            raise await self._too_little(error, replace(found, round=found.round + 1, in_round=wanted)) from error

    async def ran(self, batch: UUID | str, items: Sequence[int] = ()) -> Sequence[Mapping[str, Any]]:
        """Returns the items of a settled batch, or these of them, that a charge is about, at most a thousand: their
        places, states and tasks. What was charged already is none of them; refused is one that never ran."""
        found = await self.show(batch)
        found.check_kept()
        if not found.settled:
            raise BatchConflict(
                f"batch {found.id} is {found.state}", hint="what runs is paid for when it is settled, by itself"
            )
        if len(items) > MOST_CHARGED:
            raise InvalidInput(f"{len(items)} items are more than {MOST_CHARGED:,} at once")
        chosen = sorted({check_int(n, "item", 1, 2**31 - 1) for n in items})
        places = json.dumps(chosen) if chosen else None
        rows = await self._store.sql.feature_rows(FEATURE, "items_ran", str(found.id), MOST_CHARGED, places)
        await self._check_charged(found, sorted(set(chosen) - {row["n"] for row in rows}))
        return rows

    async def _check_charged(self, batch: RemoteBatch, places: Sequence[int]) -> None:
        """Refuses to charge for items, unless they are paid for already."""
        if not places:
            return
        rows = await self._store.sql.feature_rows(FEATURE, "items_ended", str(batch.id), json.dumps(places))
        there = {row["n"]: row for row in rows}
        for n in places:
            if n not in there:
                raise InvalidInput(f"batch {batch.id} has no item {n}", hint=f"its items are 1 to {batch.items}")
            state, said = there[n]["state"], there[n]["said"]
            if state != ItemState.COMPLETED:
                told = "nobody has asked the provider" if said is None else f"the provider said: {said}"
                raise BatchConflict(
                    f"item {n} of batch {batch.id} is {state}, and no job of it is known to have run ({told})",
                    hint=f"redrive batch reconcile {batch.id} asks about what ended without the provider's word",
                )

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

    async def _too_little(self, error: Overdrawn, wanted: RemoteBatch) -> RedriveError:
        """Returns why a round is not begun, in words about the account that should pay for it."""
        money = commits.freeze_price(wanted)
        rows = await self._store.sql.feature_rows("ledger", "account", wanted.account)
        if money is None or not rows:
            return error
        return explained(error, account_of(rows[0], self._session.settings.of(LedgerSettings).unit), money)

    async def _change(self, batch: UUID | str, change: Change, land: Land | None) -> RemoteBatch:
        """Applies a change to a batch as it is; where somebody else was quicker, to what it is then."""
        for left in reversed(range(TRIES)):
            found = await self.show(batch)
            commit = await change(found)
            try:
                await (land or self._store.apply)(commit)
                break
            except RedriveError as error:
                # A row that refuses it is another than was read: the batch, or an item, of which a provider's word
                # changes no version, and which may be as it was by now.
                refused = isinstance(error, StoreError)
                if not left or (not refused and (await self.show(batch)).version == found.version):
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
        if account is not None and not await self._store.sql.feature_rows("ledger", "account", check_account(account)):
            raise unknown(account)


async def put_away(store: Store, batch: RemoteBatch, who: str) -> Commit:
    """Returns what puts the failed tasks of a batch's last round away; nothing where none is failed."""
    if batch.join_id is None:
        return Commit()
    which = FailureFilter(join=str(batch.join_id))
    first = await store.failed_ids(which, limit=TASKS_PER_PIECE)
    if not first:
        return Commit()
    why = f"started again in round {batch.round + 1} of batch {batch.id}"
    number = await store.count_failed(which)
    made = Operation(str(new_id()), Forget(LAST_FAILURE), which, who, why, number)
    piece = made.carry_out(first, None)
    begun = Audit(who, "OPERATION_START", why, None, made.id, target=f"operation:{made.id}")
    return Commit(transitions=piece.transitions, bulk=piece.bulk, puts=piece.puts, audits=[begun])
