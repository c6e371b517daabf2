"""Acting on a remote batch: cancel it, retry what failed, charge for what ran all the same.

At once where one may alone, else as a request that a second operator agrees to. What counts is the number of items, as
with tasks; of a charge the amount."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from redrive.batches.batch import Batch, BatchConflict
from redrive.batches.names import FEATURE, ItemState
from redrive.batches.remote import commits
from redrive.batches.remote.model import RemoteBatch, count_items, items_to_retry
from redrive.batches.remote.service import RemoteBatchService
from redrive.errors import ApprovalNeeded, Overdrawn, RedriveError, StoreError
from redrive.feature import (
    Action,
    Applied,
    Asked,
    Audit,
    Commit,
    InvalidInput,
    Land,
    PlannedAction,
    Request,
    Role,
    Store,
    new_id,
)
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import TASKS_PER_PIECE, Forget, Operation
from redrive.kernel.records import Put, Record
from redrive.kernel.task import check_int, check_text
from redrive.ledger.movements import explained
from redrive.ledger.service import WINDOW, check_reason
from redrive.ledger.settings import LedgerSettings
from redrive.ledger.views import account_of
from redrive.ops import actions
from redrive.ops.allowance import Rule

CANCEL, RETRY_FAILED, CHARGE = "cancel", "retry_failed", "charge"
MOST_CHARGED = 1_000  # items, at once
TRIES = 5  # where somebody else changes the same batch
LAST_FAILURE = 2**62  # all of them are meant: none of that round can fail again
_AS = {CANCEL: Action.CANCEL, RETRY_FAILED: Action.RETRY}
Planned = tuple[Commit, int]  # and how many items it is about
Plan = Callable[[RemoteBatch], Awaitable[Planned]]


@dataclass(slots=True, frozen=True)
class Done:
    """How many items it was about, and the approval that it waits for."""

    items: int = 0
    approval: Record | None = None


class RemoteBatchActions(RemoteBatchService):
    """What operators do with remote batches, and what everybody with a role may look at."""

    async def cancel(self, batch: UUID | str, reason: str | None = None) -> RemoteBatch:
        """Cancels what was not started, and releases its money. What runs at the provider is cancelled there if it can,
        polled to its end, and paid for if it succeeded."""
        return (await self._act(CANCEL, batch, reason))[0]

    async def retry_failed(self, batch: UUID | str, reason: str | None = None) -> RemoteBatch:
        """Starts the failed items of a settled batch again, as a new charge; not where the account has too little, and
        not those whose jobs ran all the same, or may (``ToRetry``)."""
        return (await self._act(RETRY_FAILED, batch, reason))[0]

    async def charge(self, batch: UUID | str, reason: str, items: Sequence[int] = ()) -> int:
        """Charges for items, or for all, that ended here and whose jobs ran all the same, as the provider said
        afterwards: they are completed from then on, and the customer is told. Each is charged once; returns how many
        were now."""
        return (await self._act(CHARGE, batch, reason, items))[1]

    async def needs(self, action: str, batch: Batch, items: int) -> str | None:
        """Returns why a second operator would have to agree to act on so many items; None when nobody has to."""
        return await self._session.needs(_planned(action, batch, items), self._rule(action))

    async def act(self, action: str, batch: Batch, reason: str | None, items: Sequence[int] = ()) -> Done:
        """Acts, or asks for it where a second operator has to agree."""
        number = batch.pending
        if action == CHARGE:
            reason = check_reason(reason or "")
            items = [row["n"] for row in await self.ran(batch.id, items)]
            if not (number := len(items)):
                return Done()
        elif action == RETRY_FAILED:
            number = (await items_to_retry(self._store, batch.id)).matched

        async def change(puts: Sequence[Put]) -> int:
            async def land(commit: Commit) -> Applied:  # of what somebody else has charged for meanwhile nothing counts
                return await self._store.apply(replace(commit, puts=[*commit.puts, *(puts if commit.rows else ())]))

            return (await self._act(action, batch.id, reason, items, land=land))[1]

        try:
            return Done(await self._session.alone(_planned(action, batch, number), change, self._rule(action)))
        except ApprovalNeeded as needed:
            found = await self.show(batch.id)
            await (await self._plan(action, found, self._who, reason, items))(found)  # refused where it is not possible
            request = _request(action, batch, number, items)
            return Done(number, await self._session.ask(request, reason, needed.why))

    async def carry_out(self, action: str, asked: Asked, land: Land) -> None:
        """Does what somebody else asked for, and the caller agrees to: for the round that it was asked for."""
        batch, round = asked.arguments["batch"], asked.arguments["round"]
        found = await self.show(batch)
        if found.round != round:
            raise BatchConflict(
                f"batch {batch} is in round {found.round}, and this was asked for in round {round}",
                hint="reject it; who still wants it asks again",
            )
        await self._act(action, batch, asked.reason, asked.arguments.get("items", ()), by=asked.by, land=land)

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

    async def _act(
        self,
        action: str,
        batch: UUID | str,
        reason: str | None,
        items: Sequence[int] = (),
        *,
        by: str | None = None,
        land: Land | None = None,
    ) -> tuple[RemoteBatch, int]:
        """Acts on a batch as it is; where somebody else was quicker, as it is then. Returns it as it is afterwards, and
        how many items it was about. ``by``: who asked for it, where the caller agrees; ``land`` applies it together
        with more."""
        agrees = self._session.may(Role.OPERATOR)
        plan: Plan | None = None
        for left in reversed(range(TRIES)):
            found = await self.show(batch)
            plan = plan or await self._plan(action, found, agrees if by is None else by, reason, items)
            commit, number = await plan(found)
            try:
                await (land or self._store.apply)(commit)
                break
            except RedriveError as error:
                # A row that refuses it is another than was read: the batch, or an item, of which a provider's word
                # changes no version, and which may be as it was by now.
                refused = isinstance(error, StoreError)
                if not left or (not refused and (await self.show(batch)).version == found.version):
                    if isinstance(error, Overdrawn):
                        raise await self._too_little(error, found, number) from error
                    raise
        return await self.show(batch), number

    async def _plan(self, action: str, first: RemoteBatch, who: str, reason: str | None, items: Sequence[int]) -> Plan:
        """Returns what makes the Commit of an action for a batch as it is, or refuses it. ``first``: as it was when the
        action was asked for."""
        if action == CHARGE:
            why = check_reason(reason or "")
        elif action == CANCEL:
            check_text(reason, "reason")
        else:
            actions.check_reason(reason)
            failed = await put_away(self._store, first, who)

        async def cancel(found: RemoteBatch) -> Planned:
            found.check_kept()
            if found.settled or found.cancelled_at is not None:
                state = found.state if found.settled else "being cancelled"
                raise BatchConflict(f"batch {found.id} is {state}", hint="only one that has not ended is cancelled")
            counts = await count_items(self._store, found)
            return commits.cancel(found, who, reason, counts), found.items - counts.ended

        async def retry(found: RemoteBatch) -> Planned:
            found.check_kept()
            if not found.settled or found.version != first.version:
                raise BatchConflict(
                    f"batch {found.id} is {found.state}", hint="failed items are started again when it is settled"
                )
            seen = await items_to_retry(self._store, found.id)
            if not seen.failed:
                raise BatchConflict(f"no item of batch {found.id} is failed", hint="there is nothing to retry")
            if not seen.matched:
                raise BatchConflict(
                    f"no failed item of batch {found.id} can be started again", hint="; ".join(seen.notes(found.id))
                )
            return commits.retry(found, seen.matched, who, reason, failed), seen.matched

        async def charge(found: RemoteBatch) -> Planned:
            ran = await self.ran(found.id, items)
            if not ran:
                return Commit(), 0
            return commits.charge(found, ran, who, why, await count_items(self._store, found)), len(ran)

        return {CANCEL: cancel, RETRY_FAILED: retry, CHARGE: charge}[action]

    async def _too_little(self, error: Overdrawn, batch: RemoteBatch, items: int) -> RedriveError:
        """Returns why a round of so many items is not begun, in words about the account that should pay for it."""
        money = commits.freeze_price(replace(batch, round=batch.round + 1, in_round=items))
        rows = await self._store.sql.feature_rows("ledger", "account", batch.account)
        if money is None or not rows:
            return error
        return explained(error, account_of(rows[0], self._session.settings.of(LedgerSettings).unit), money)

    def _rule(self, action: str) -> Rule | None:
        """Returns the rule of money for a charge: what the same person moved within a day counts
        (``LEDGER_APPROVALS_ABOVE``)."""
        if action != CHARGE:
            return None
        own = self._session.settings.of(LedgerSettings)
        return self._session.amounts(own.approvals_above, WINDOW, "ledger", own.unit)


def _planned(action: str, batch: Batch, items: int) -> PlannedAction:
    if action != CHARGE:
        return PlannedAction(_AS[action], items)
    return PlannedAction(None, 0 if batch.remote is None else batch.remote.price_of(items))


def _request(action: str, batch: Batch, number: int, items: Sequence[int]) -> Request:
    """Returns what is asked for, in words that a second operator decides by."""
    assert batch.remote is not None
    part, counted = batch.remote, f"{number:,} item{'' if number == 1 else 's'}"
    amount = part.price_of(number)
    arguments: dict[str, Any] = {"batch": str(batch.id), "round": part.round}
    if action == CANCEL:
        title = f"cancel {counted} of batch {batch.id}"
        told = (
            "what was not started is cancelled and its money released; what runs at the provider is polled to its end"
        )
    elif action == RETRY_FAILED:
        title = f"retry {counted} of batch {batch.id} that failed"
        charge = f", as a new charge of {amount:,} {part.unit}" if amount else ""
        told = f"they are started again at the provider{charge}"
    else:
        arguments["items"] = list(items)
        title = f"charge for {counted} of batch {batch.id} that ran all the same"
        told = (
            f"account {part.account} pays {amount:,} {part.unit} for jobs that ran; they are completed, and it is told"
        )
    planned = amount if action == CHARGE else number
    return Request(FEATURE, action, arguments, planned, title, told, f"/batches/{batch.id}", batch.scope)


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
