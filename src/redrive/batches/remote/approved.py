"""Acting on a remote batch as somebody who may need a second operator: at once where one may alone, else as a request
that another agrees to. What counts is the number of items, as with tasks; of a charge the amount."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redrive.batches.batch import Batch, BatchConflict
from redrive.batches.names import FEATURE
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
    """How many items it was about, and the approval that it waits for."""

    items: int = 0
    approval: Record | None = None


class ApprovedBatches(Service):
    async def needs(self, action: str, batch: Batch, items: int) -> str | None:
        """Returns why a second operator would have to agree to act on so many items; None when nobody has to."""
        return await self._session.needs(_planned(action, batch, items), self._rule(action))

    async def act(self, action: str, batch: Batch, reason: str | None, items: Sequence[int] = ()) -> Done:
        """Cancels a batch, retries what failed or charges for items that ran all the same, or asks for it where a
        second operator has to agree."""
        own = RemoteBatchService(self._session)
        if action == CHARGE:
            reason = check_reason(reason or "")
            items = [row["n"] for row in await own.ran(batch.id, items)]
            if not items:
                return Done()
        number = len(items) if action == CHARGE else batch.pending
        if action == RETRY_FAILED:
            number = (await own.to_retry(batch.id)).matched

        async def change(puts: Sequence[Put]) -> Any:
            async def land(commit: Commit) -> Applied:  # of what somebody else has charged for meanwhile nothing counts
                return await self._store.apply(replace(commit, puts=[*commit.puts, *(puts if commit.rows else ())]))

            return await self._call(action, batch.id, reason, items, land=land)

        try:
            done = await self._session.alone(_planned(action, batch, number), change, self._rule(action))
        except ApprovalNeeded as needed:
            _check(action, batch)
            request = _request(action, batch, number, items)
            return Done(number, await self._session.ask(request, reason, needed.why))
        if isinstance(done, RemoteBatch):
            return Done(done.in_round if action == RETRY_FAILED else number)
        return Done(done)

    async def carry_out(self, action: str, asked: Asked, land: Land) -> None:
        """Does what somebody else asked for, and the caller agrees to: for the round that it was asked for."""
        batch, round = asked.arguments["batch"], asked.arguments["round"]
        found = await RemoteBatchService(self._session).show(batch)
        if found.round != round:
            raise BatchConflict(
                f"batch {batch} is in round {found.round}, and this was asked for in round {round}",
                hint="reject it; who still wants it asks again",
            )
        await self._call(action, batch, asked.reason, asked.arguments.get("items", ()), by=asked.by, land=land)

    async def _call(self, action: str, batch: Any, reason: str | None, items: Sequence[int], **how: Any) -> Any:
        own = RemoteBatchService(self._session)
        if action == CHARGE:
            return await own.charge(batch, reason or "", items, **how)
        return await (own.cancel if action == CANCEL else own.retry_failed)(batch, reason, **how)

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


def _check(action: str, batch: Batch) -> None:
    """Refuses to ask for what is not possible now."""
    batch.check_kept()
    if action == CANCEL and batch.cancelled_at is not None:
        raise BatchConflict(f"batch {batch.id} is being cancelled", hint="it ends when its last jobs have")
    if action == RETRY_FAILED and not batch.ended:
        raise BatchConflict(
            f"batch {batch.id} is {batch.state}", hint="failed items are started again when it is settled"
        )


def _request(action: str, batch: Batch, number: int, items: Sequence[int]) -> Request:
    """Returns what is asked for, in words that a second operator decides by."""
    assert batch.remote is not None
    part, counted = batch.remote, f"{number:,} item{'' if number == 1 else 's'}"
    amount = part.price_of(number)
    arguments: dict[str, Any] = {"batch": str(batch.id), "round": part.round}
    if action == CANCEL:
        title = f"cancel {counted} of batch {batch.label}"
        told = (
            "what was not started is cancelled and its money released; what runs at the provider is polled to its end"
        )
    elif action == RETRY_FAILED:
        title = f"retry {counted} of batch {batch.label} that failed"
        charge = f", as a new charge of {amount:,} {part.unit}" if amount else ""
        told = f"they are started again at the provider{charge}"
    else:
        arguments["items"] = list(items)
        title = f"charge for {counted} of batch {batch.label} that ran all the same"
        told = (
            f"account {part.account} pays {amount:,} {part.unit} for jobs that ran; they are completed, and it is told"
        )
    planned = amount if action == CHARGE else number
    return Request(FEATURE, action, arguments, planned, title, told, f"/batches/{batch.id}", batch.scope)
