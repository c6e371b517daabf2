"""What is measured of batches: those that are open, and since when; and items whose end nobody knows."""

from __future__ import annotations

from redrive.batches.names import FEATURE
from redrive.feature import Settings, Store
from redrive.feature.metrics import FeatureMetrics, Metric, Samples, Scope, Type

COUNTED_UP_TO = 1000
OPEN = Metric("redrive_batches_open", Type.GAUGE, "Batches that take items, up to 1,000.", scope=Scope.FLEET)
OLDEST = Metric("redrive_batches_oldest_open_seconds", Type.GAUGE, "Age of the oldest open batch.", scope=Scope.FLEET)
UNENDED = Metric(
    "redrive_batches_processing",
    Type.GAUGE,
    "Batches that have not ended, up to 1,000 of each sort.",
    scope=Scope.FLEET,
)
UNKNOWN = Metric(
    "redrive_batches_unknown_items",
    Type.GAUGE,
    "Items at providers that ended without their provider's word, up to 10,000: redrive batch reconcile asks.",
    scope=Scope.FLEET,
)


async def fleet(store: Store, settings: Settings) -> Samples:
    """Returns what the store says, the same whoever is asked."""
    [row] = await store.sql.feature_rows(FEATURE, "open_ones", COUNTED_UP_TO)
    [unknown] = await store.sql.feature_rows(FEATURE, "unknown_items", None)
    values = {OPEN: row["n"], OLDEST: max(row["age"], 0.0), UNENDED: row["unended"] + row["unsettled"]}
    values[UNKNOWN] = unknown["n"]
    return {metric.name: {(): float(value)} for metric, value in values.items()}


metrics = FeatureMetrics([OPEN, OLDEST, UNENDED, UNKNOWN], fleet=fleet)
