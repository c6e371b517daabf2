"""Money at risk: frozen under a reference that does not move. Told by doctor, by an alert, and as a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.feature import Finding, Level
from redrive.ledger.settings import LedgerSettings

if TYPE_CHECKING:
    from redrive.feature import Settings, Store

SHOWN = 20  # findings that name one reference each; the rest is a number


async def totals(store: Store, settings: Settings) -> dict[str, int]:
    """Returns how much is ``frozen``, and how much of it is ``at_risk``: under references that have not moved for
    ``LEDGER_AT_RISK_HOURS``."""
    [found] = await store.sql.feature_rows("ledger", "totals", settings.of(LedgerSettings).at_risk_hours)
    return found


async def at_risk(store: Store, settings: Settings) -> float | None:
    """Returns how much is at risk; None where nothing is frozen."""
    found = await totals(store, settings)
    return float(found["at_risk"]) if found["frozen"] else None


def limit(settings: Settings) -> float:
    """Returns how much may be at risk before somebody is told."""
    return float(settings.of(LedgerSettings).at_risk_limit)


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
