"""The ledger: accounts of whole numbers, moved by postings that add up to zero.

Every process loads this module. What it names by text is loaded by whoever needs it. Other features move money by
``redrive.ledger.movements``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.feature import AlertRule, ApprovedAction, Feature, Need
from redrive.ledger.doctor import at_risk, examine, limit
from redrive.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from redrive.feature import Asked, Land


def _approved(action: str) -> ApprovedAction:
    """Returns an action that a second person may have to agree to."""

    async def carry_out(session: Any, asked: Asked, land: Land) -> None:
        from redrive.ledger.service import Ledger

        await Ledger(session).carry_out(action, asked, land)

    return ApprovedAction(action, carry_out)


ALERTS = (
    AlertRule(
        "ledger_at_risk",
        "money that is frozen for work that does not move",
        at_risk,
        threshold=limit,
        fix="redrive ledger at-risk names it; mend what it is frozen for, or release it: redrive ledger release",
    ),
)

LEDGER = Feature(
    "ledger",
    __name__,
    about="Accounts and money: open, credit, adjust, reverse, statements, and the proof that it adds up.",
    services={"ledger": "redrive.ledger.application:AppLedger"},
    routes="redrive.ledger.routes:router",
    commands="redrive.ledger.commands:cli",
    pages="redrive.ledger.pages:pages",
    settings=LedgerSettings,
    examine=examine,
    alerts=ALERTS,
    metrics="redrive.ledger.metrics:metrics",
    approved=(_approved("credit"), _approved("adjust"), _approved("reverse")),
    tasks=False,
    needs=(Need.LEDGER,),
)
__all__ = ["LEDGER"]
