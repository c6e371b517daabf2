"""``/api/ledger``."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from redrive.api.models import ApprovalOut
from redrive.feature.api import PROBLEMS, TheOperator
from redrive.ledger.accounts import Account
from redrive.ledger.api_models import (
    AccountOut,
    AccountsOut,
    AdjustedOut,
    AdjustIn,
    CreditIn,
    FreezeIn,
    FreezeOut,
    FreezesOut,
    OpenIn,
    ReverseIn,
    RiskOut,
    SettleIn,
    SidesOut,
    StatementOut,
    VerdictOut,
)
from redrive.ledger.reversals import Reversals
from redrive.ledger.service import Adjusted, Ledger
from redrive.ledger.statement import Place, Statement
from redrive.ledger.verify import Verdict
from redrive.ops import views

router = APIRouter(prefix="/api/ledger", tags=["ledger"], responses=PROBLEMS)
CSV = "text/csv; charset=utf-8"
Limit = Annotated[int, Query(ge=1, le=500)]


@router.get("/accounts")
async def accounts(operator: TheOperator, search: str = "", after: str = "", limit: Limit = 100) -> AccountsOut:
    """Accounts by name; ``next`` is what ``after`` continues with."""
    found = await operator.of(Ledger).accounts(search, after, limit)
    items = [AccountOut.model_validate(one) for one in found]
    return AccountsOut(items=items, next=found[-1].name if len(found) == limit else None)


@router.post("/accounts", status_code=201, response_model=AccountOut)
async def open_account(body: OpenIn, operator: TheOperator) -> Account:
    """Open an account; it begins with nothing."""
    return await operator.of(Ledger).open(body.name, body.label)


@router.get("/accounts/{name}", response_model=AccountOut)
async def account(name: str, operator: TheOperator) -> Account:
    """What an account can spend, and what is frozen."""
    return await operator.of(Ledger).show(name)


@router.get("/accounts/{name}/at", response_model=SidesOut)
async def account_at(name: str, time: str, operator: TheOperator) -> Place:
    """What an account could spend at a time (``2h`` ago, or 2026-03-01T08:30Z), and what was frozen."""
    return (await operator.of(Ledger).show_at(name, time))[1]


@router.get("/accounts/{name}/freezes")
async def freezes(name: str, operator: TheOperator, limit: Limit = 100) -> FreezesOut:
    """What an account has frozen, and for what."""
    found = await operator.of(Ledger).frozen(name, limit)
    return FreezesOut(items=[FreezeOut.model_validate(one) for one in found])


@router.get("/accounts/{name}/statement", response_model=StatementOut)
async def statement(
    name: str, operator: TheOperator, before: str | None = None, limit: Limit = 50, reference: str | None = None
) -> Statement:
    """The movements of an account, the latest first; ``next`` is what ``before`` continues with. With ``reference``
    only those for one thing (``batch:ID``), without what the account had after each."""
    return await operator.of(Ledger).statement(name, before, limit, reference)


@router.get(
    "/accounts/{name}/statement.csv",
    response_class=StreamingResponse,
    responses={200: {"description": "All of it, the oldest first", "content": {CSV: {}}}},
)
async def statement_csv(
    name: str, operator: TheOperator, since: str | None = None, until: str | None = None
) -> StreamingResponse:
    """All movements, streamed. Cells that a spreadsheet would take for formulas begin with an apostrophe."""
    lines = await operator.of(Ledger).export(name, since, until)
    headers = {"Content-Disposition": f'attachment; filename="statement-{name.replace(":", "_")}.csv"'}
    return StreamingResponse(lines, media_type=CSV, headers=headers)


@router.post("/accounts/{name}/credit", responses={202: {"model": AdjustedOut, "description": "It waits for approval"}})
async def credit(name: str, body: CreditIn, operator: TheOperator, response: Response) -> AdjustedOut:
    """Bring money to an account; with the same ``key`` again, it comes once. Much of it waits for a second person."""
    return _adjusted(await operator.of(Ledger).credit(name, body.amount, body.reason, body.key), response)


@router.post("/accounts/{name}/adjust", responses={202: {"model": AdjustedOut, "description": "It waits for approval"}})
async def adjust(name: str, body: AdjustIn, operator: TheOperator, response: Response) -> AdjustedOut:
    """Put an account right, by more or less; never below zero. Much of it waits for a second person."""
    return _adjusted(await operator.of(Ledger).adjust(name, body.change, body.reason, body.key), response)


@router.post("/reverse", responses={202: {"model": AdjustedOut, "description": "It waits for approval"}})
async def reverse(body: ReverseIn, operator: TheOperator, response: Response) -> AdjustedOut:
    """Undo a credit or an adjustment, once, by a movement of its own. Much of it waits for a second person."""
    return _adjusted(await operator.of(Reversals).reverse(body.movement, body.reason), response)


def _adjusted(done: Adjusted, response: Response) -> AdjustedOut:
    if done.approval is None:
        return AdjustedOut.model_validate(done.account)
    response.status_code = 202
    waits = ApprovalOut.model_validate(views.approval(done.approval))
    return AdjustedOut.model_validate(done.account).model_copy(update={"approval": waits})


@router.post("/accounts/{name}/freeze", response_model=AccountOut)
async def freeze(name: str, body: FreezeIn, operator: TheOperator) -> Account:
    """Freeze money of an account for some work."""
    return await operator.of(Ledger).freeze(name, body.amount, body.reference, body.reason, body.key)


@router.post("/accounts/{name}/release", response_model=AccountOut)
async def release(name: str, body: SettleIn, operator: TheOperator) -> Account:
    """Give back what is frozen for some work."""
    return await operator.of(Ledger).release(name, body.reference, body.reason, body.amount, body.key)


@router.post("/accounts/{name}/capture", response_model=AccountOut)
async def capture(name: str, body: SettleIn, operator: TheOperator) -> Account:
    """Take what is frozen for some work as earned."""
    return await operator.of(Ledger).capture(name, body.reference, body.reason, body.amount, body.key)


@router.get("/at-risk")
async def at_risk(operator: TheOperator, limit: Limit = 100) -> RiskOut:
    """Money that is frozen for work that does not move, the largest amounts first."""
    ledger = operator.of(Ledger)
    items = [FreezeOut.model_validate(one) for one in await ledger.at_risk(limit)]
    return RiskOut(items=items, **await ledger.totals())


@router.get("/verify", response_model=VerdictOut)
async def verify(operator: TheOperator) -> Verdict:
    """Prove that the books are right; what is wrong is named."""
    return await operator.of(Ledger).verify()
