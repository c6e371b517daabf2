"""What goes over the wire of ``/api/ledger``."""

from __future__ import annotations

from datetime import datetime

from redrive.api.models import ApprovalOut
from redrive.feature.api import In, Out


class OpenIn(In):
    name: str
    label: str | None = None


class CreditIn(In):
    amount: int
    reason: str
    key: str | None = None


class AdjustIn(In):
    change: int
    reason: str
    key: str | None = None


class ReverseIn(In):
    """``movement`` as a statement names it: ``credit:KEY`` or ``adjust:KEY``."""

    movement: str
    reason: str


class FreezeIn(In):
    amount: int
    reference: str
    reason: str
    key: str | None = None


class SettleIn(In):
    """Without an amount, all that is frozen for the reference."""

    reference: str
    reason: str
    amount: int | None = None
    key: str | None = None


class AccountOut(Out):
    name: str
    label: str | None
    available: int
    frozen: int
    balance: int
    opened_at: datetime
    opened_by: str


class AdjustedOut(AccountOut):
    """An account as it is; with an approval, it changes when a second person has agreed."""

    approval: ApprovalOut | None = None


class AccountsOut(Out):
    items: list[AccountOut]
    next: str | None


class SidesOut(Out):
    available: int
    frozen: int


class FreezeOut(Out):
    account: str
    reference: str
    amount: int
    since: datetime
    moved_at: datetime


class FreezesOut(Out):
    items: list[FreezeOut]


class LineOut(Out):
    at: datetime
    kind: str
    key: str | None
    movement: str | None
    reference: str | None
    reason: str | None
    available: int
    frozen: int
    available_after: int | None
    frozen_after: int | None


class StatementOut(Out):
    lines: list[LineOut]
    next: str | None


class RiskOut(Out):
    frozen: int
    at_risk: int
    items: list[FreezeOut]


class ProblemOut(Out):
    what: str
    name: str
    text: str


class VerdictOut(Out):
    ok: bool
    postings: int
    accounts: int
    checks: list[str]
    wrong: int
    problems: list[ProblemOut]
