"""The page of a remote batch in the console: how far it is, its money, its items, and acting on it."""

from __future__ import annotations

from fastapi import Response

from redrive.batches.batch import ItemState
from redrive.batches.remote.model import RemoteBatch
from redrive.batches.remote.page_regions import ROWS, shown
from redrive.batches.remote.reads import Progress
from redrive.batches.remote.service import CANCEL, MOST_CHARGED, RETRY_FAILED, ApprovedBatches, RemoteBatchService
from redrive.console.filters import refuse_unknown
from redrive.errors import InvalidInput
from redrive.feature import Operator, Task
from redrive.feature.console import Panel, ThePage
from redrive.kernel.classify import FailureType
from redrive.ledger.accounts import Account
from redrive.ledger.service import Ledger


async def one_remote(page: ThePage, batch: str) -> Response:
    refuse_unknown(page, "state", "failureType", "after")
    state, kind = page.query.get("state") or None, page.query.get("failureType") or None
    after = page.query.get("after") or "0"
    if not after.isdecimal():
        raise InvalidInput(f"after is the place of an item, not {after!r}")
    made = await shown(page.operator, batch)
    items = await page.operator.of(RemoteBatchService).items(
        batch, states=[state] if state else (), failure_type=kind, after=int(after), limit=ROWS
    )
    return await page.render(
        "batches/remote_batch.html",
        shown=made,
        payer=await _payer(page.operator, made.found.batch) if page.may_act else None,
        approval=await _second_person(page.operator, made.found) if page.may_act else None,
        charge_approval=await _second_for_charge(page.operator, made.found) if page.may_act else None,
        state=state,
        states=list(ItemState),
        kind=kind,
        kinds=[one.value for one in FailureType],
        items=items,
        origin=int(after),
        after=items[-1].n if len(items) == ROWS else None,
    )


async def _payer(operator: Operator, batch: RemoteBatch) -> Account | None:
    return None if batch.account is None else await operator.of(Ledger).show(batch.account)


async def _second_person(operator: Operator, found: Progress) -> str | None:
    """Returns why a second person has to agree to what the page offers; None where nobody has to."""
    states, own = found.counts.states, operator.of(ApprovedBatches)
    if found.batch.settled:
        return await own.needs(RETRY_FAILED, found.retry.matched)
    return await own.needs(CANCEL, states[ItemState.PENDING] + states[ItemState.PROCESSING])


async def _second_for_charge(operator: Operator, found: Progress) -> str | None:
    return await operator.of(ApprovedBatches).needs_for(found.batch.price_of(min(found.uncharged, MOST_CHARGED)))


async def panel(operator: Operator, task: Task) -> Panel | None:
    """Returns what the page of an item's task says about its batch."""
    if "ordinal" not in (task.facts or {}):
        return None
    own = operator.of(RemoteBatchService)
    values = {"batch": await own.show(task.facts["batch"]), "item": await own.item_of_task(task.id)}
    return Panel("Item of a batch", "batches/item_panel.html", {**values, "unit": operator.of(Ledger).unit})
