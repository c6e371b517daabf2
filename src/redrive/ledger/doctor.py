"""What is wrong with the ledger, for doctor: money that is frozen for work that does not move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.feature import Finding, Level
from redrive.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from redrive.feature import Settings, Store

SHOWN = 20  # findings that name one reference each; the rest is a number


async def examine(store: Store, settings: Settings) -> list[Finding]:
    """Returns a finding for each reference under which money does not move, the largest amounts first."""
    hours = settings.of(LedgerSettings).at_risk_hours
    rows = await store.sql.feature_rows("ledger", "at_risk", hours, SHOWN)
    return [
        Finding(
            Level.WARNING,
            "ledger_at_risk",
            f"{row['amount']} of account {row['account']} are frozen for {row['reference']}, "
            f"which has not moved for {hours:g} hours",
            f"redrive ledger show {row['account']}",
            ("page", f"/ledger/{row['account']}"),
        )
        for row in rows
    ]
