"""What is measured of the ledger. Accounts are no labels: there may be as many as customers."""

from __future__ import annotations

from redrive.feature import Settings, Store
from redrive.feature.metrics import FeatureMetrics, Metric, Samples, Scope, Type
from redrive.ledger.doctor import totals

FROZEN = Metric("redrive_ledger_frozen", Type.GAUGE, "Money that is frozen, of all accounts.", scope=Scope.FLEET)
AT_RISK = Metric(
    "redrive_ledger_at_risk", Type.GAUGE, "Money that is frozen for work that does not move.", scope=Scope.FLEET
)


async def fleet(store: Store, settings: Settings) -> Samples:
    """Returns what the store says, the same whoever is asked."""
    found = await totals(store, settings)
    return {FROZEN.name: {(): float(found["frozen"])}, AT_RISK.name: {(): float(found["at_risk"])}}


metrics = FeatureMetrics([FROZEN, AT_RISK], fleet=fleet)
