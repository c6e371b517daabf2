"""The settings of the ledger, by environment variable; in redrive.toml also as ``[ledger]`` with the fields' names."""

from __future__ import annotations

from redrive.feature import FeatureSettings, setting


class LedgerSettings(FeatureSettings):
    # Money is at risk when it is frozen under a reference that has not moved for so long.
    at_risk_hours: float = setting("LEDGER_AT_RISK_HOURS", 24.0, gt=0, le=8760)
    # More than this at risk fires the alert.
    at_risk_limit: int = setting("LEDGER_AT_RISK_LIMIT", 0, ge=0)
    # Credits, adjustments and reversals of more than this by one person within 24 hours need a second one.
    approvals_above: int = setting("LEDGER_APPROVALS_ABOVE", 1_000_000, ge=0)
    # What people call what is counted, beside amounts: credits, cents, tokens.
    unit: str = setting("LEDGER_UNIT", "credits", max_length=20)
