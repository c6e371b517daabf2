"""What somebody is told about the ledger without asking."""

from __future__ import annotations

from redrive.feature import AlertRule
from redrive.ledger.at_risk import at_risk, limit

ALERTS = (
    AlertRule(
        "ledger_at_risk",
        "money that is frozen for work that does not move",
        at_risk,
        threshold=limit,
        fix="redrive ledger at-risk names it; mend what it is frozen for, or release it: redrive ledger release",
    ),
)
