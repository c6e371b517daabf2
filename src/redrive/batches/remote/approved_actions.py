"""Cancels a remote batch, starts what failed of it again, or charges for what ran, for people: alone, or as a request
that a second operator agrees to. What counts is the number of items, as with tasks; of a charge the amount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redrive.batches.batch import FEATURE, Batch, BatchConflict
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.service import RemoteBatchService
from redrive.errors import ApprovalNeeded
from redrive.feature import Action, Applied, Asked, Commit, Land, PlannedAction, Request, Service
from redrive.kernel.records import Put, Record
from redrive.ledger.service import WINDOW, check_reason
from redrive.ledger.settings import LedgerSettings
from redrive.ops.allowance import Rule

CANCEL, RETRY_FAILED, CHARGE = "cancel", "retry_failed", "charge"
_AS = {CANCEL: Action.CANCEL, RETRY_FAILED: Action.RETRY}


@dataclass(slots=True, frozen=True)
class Done:
    """The batch as it is now, or the approval that it waits for."""

    batch: RemoteBatch | None = None
    approval: Record | None = None
    charged: int = 0  # items


class ApprovedBatches(Service):
    async def needs(self, action: str, items: int) -> str | None:
        """Returns why a second operator would have to agree to act on so many items; None when nobody has to."""
        return await self._session.needs(PlannedAction(_AS[action], items))

    async def act(self, action: str, batch: Batch, reason: str | None) -> Done:
        """Cancels a batch or retries what failed, or asks for it where a second operator has to agree."""
        own = RemoteBatchService(self._session)
        items = batch.pending if action == CANCEL else (await own.to_retry(batch.id)).matched

        async def act(puts: Sequence[Put]) -> RemoteBatch:
            async def land(commit: Commit) -> Applied:
                return await self._store.apply(replace(commit, puts=[*commit.puts, *puts]))

            changed: RemoteBatch = await self._call(action)(batch.id, reason, land=land)
            return changed

        try:
            return Done(await self._session.alone(PlannedAction(_AS[action], items), act))
        except ApprovalNeeded as needed:
            _check(action, batch)
            return Done(approval=await self._session.ask(_request(action, batch, items), reason, needed.why))

    async def needs_for(self, amount: int) -> str | None:
        """Returns why a second operator would have to agree to charge so much; None when nobody has to."""
        return await self._session.needs(PlannedAction(None, amount), self._money())

    async def charge(self, batch: Batch, items: Sequence[int], reason: str | None) -> Done:
        """Charges for items that ran all the same, or asks for it where that is, with what the same person moved
        within a day, more than one may alone (``LEDGER_APPROVALS_ABOVE``)."""
        own, why = RemoteBatchService(self._session), check_reason(reason or "")
        chosen = [row["n"] for row in await own.ran(batch.id, items)]
        if not chosen or batch.remote is None:
            return Done()

        async def act(puts: Sequence[Put]) -> int:
            async def land(commit: Commit) -> Applied:  # of what somebody else has charged for meanwhile nothing counts
                return await self._store.apply(replace(commit, puts=[*commit.puts, *(puts if commit.rows else ())]))

            return await own.charge(batch.id, why, chosen, land=land)

        try:
            planned = PlannedAction(None, batch.remote.price_of(len(chosen)))
            return Done(charged=await self._session.alone(planned, act, self._money()))
        except ApprovalNeeded as needed:
            return Done(approval=await self._session.ask(_charge_request(batch, chosen), why, needed.why))

    def _money(self) -> Rule:
        own = self._session.settings.of(LedgerSettings)
        return self._session.amounts(own.approvals_above, WINDOW, "ledger", own.unit)

    async def carry_out(self, action: str, asked: Asked, land: Land) -> None:
        """Does what somebody else asked for, and the caller agrees to: for the round that it was asked for."""
        batch, round = asked.arguments["batch"], asked.arguments["round"]
        found = await RemoteBatchService(self._session).show(batch)
        if found.round != round:
            raise BatchConflict(
                f"batch {batch} is in round {found.round}, and this was asked for in round {round}",
                hint="reject it; who still wants it asks again",
            )
        if action == CHARGE:
            chosen = asked.arguments["items"]
            await RemoteBatchService(self._session).charge(batch, asked.reason or "", chosen, by=asked.by, land=land)
            return
        await self._call(action)(batch, asked.reason, by=asked.by, land=land)

    def _call(self, action: str) -> Any:
        own = RemoteBatchService(self._session)
        return own.cancel if action == CANCEL else own.retry_failed


def _check(action: str, batch: Batch) -> None:
    """Refuses to ask for what is not possible now."""
    batch.check_kept()
    if action == CANCEL and batch.cancelled_at is not None:
        raise BatchConflict(f"batch {batch.id} is being cancelled", hint="it ends when its last jobs have")
    if action == RETRY_FAILED and not batch.ended:
        raise BatchConflict(
            f"batch {batch.id} is {batch.state}", hint="failed items are started again when it is settled"
        )


def _charge_request(batch: Batch, items: Sequence[int]) -> Request:
    assert batch.remote is not None
    part, number = batch.remote, len(items)
    amount = part.price_of(number)
    counted = f"{number:,} item{'' if number == 1 else 's'}"
    told = f"account {part.account} pays {amount:,} {part.unit} for jobs that ran; they are completed, and it is told"
    arguments = {"batch": str(batch.id), "round": part.round, "items": list(items)}
    title = f"charge for {counted} of batch {batch.label} that ran all the same"
    return Request(FEATURE, CHARGE, arguments, amount, title, told, f"/batches/{batch.id}", batch.scope)


def _request(action: str, batch: Batch, items: int) -> Request:
    part = batch.remote
    counted = f"{items:,} item{'' if items == 1 else 's'}"
    if action == CANCEL:
        title = f"cancel {counted} of batch {batch.label}"
        told = (
            "what was not started is cancelled and its money released; what runs at the provider is polled to its end"
        )
    else:
        charge = 0 if part is None else part.price_of(items)
        title = f"retry {counted} of batch {batch.label} that failed"
        told = "they are started again at the provider" + (
            f", as a new charge of {charge:,} {part.unit}" if part is not None and charge else ""
        )
    round = 1 if part is None else part.round
    page = f"/batches/{batch.id}"
    return Request(FEATURE, action, {"batch": str(batch.id), "round": round}, items, title, told, page, batch.scope)
