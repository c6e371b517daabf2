"""``/api/ledger``."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from redrive.feature.api import PROBLEMS, In, Out, TheOperator
from redrive.ledger.accounts import Account
from redrive.ledger.service import Ledger

router = APIRouter(prefix="/api/ledger", tags=["ledger"], responses=PROBLEMS)


class OpenIn(In):
    name: str
    label: str | None = None


class CreditIn(In):
    amount: int
    reason: str
    key: str | None = None


class AccountOut(Out):
    name: str
    label: str | None
    available: int
    frozen: int
    balance: int
    opened_at: datetime
    opened_by: str


class AccountsOut(Out):
    items: list[AccountOut]
    next: str | None


@router.get("/accounts", response_model=AccountsOut)
async def accounts(
    operator: TheOperator,
    search: str = "",
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> AccountsOut:
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


@router.post("/accounts/{name}/credit", response_model=AccountOut)
async def credit(name: str, body: CreditIn, operator: TheOperator) -> Account:
    """Bring money to an account; with the same ``key`` again, it comes once."""
    return await operator.of(Ledger).credit(name, body.amount, body.reason, body.key)
