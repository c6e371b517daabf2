"""What is measured of orders: counted where it happens, made of a worker's own counts, or read from the store."""

from __future__ import annotations

from redrive.feature import Settings, Store
from redrive.feature.metrics import FeatureMetrics, Metric, Samples, Scope, Type, put
from redrive_kit.examples.orders.settings import OrderSettings

DELIVERED = Metric("orders_delivered_total", Type.COUNTER, "Parcels that were delivered.")
ENDED = Metric("orders_parcels_total", Type.COUNTER, "Parcels that a worker is done with.", ("outcome",))
LATE = Metric("orders_late", Type.GAUGE, "Orders whose parcels do not move.", scope=Scope.FLEET)


def process(worker: Samples) -> Samples:
    """Returns what follows from what the worker has counted anyway."""
    found: Samples = {}
    for (_, kind, outcome, _), n in worker.get("redrive_attempts_total", {}).items():
        if kind == "ORDERS_PARCEL" and outcome in ("completed", "failed"):
            put(found, ENDED.name, n, outcome)
    return found


async def fleet(store: Store, settings: Settings) -> Samples:
    """Returns what the store says, the same whoever is asked."""
    rows = await store.sql.feature_rows("orders", "late", settings.of(OrderSettings).late_hours)
    return {LATE.name: {(): float(len(rows))}}


metrics = FeatureMetrics([DELIVERED, ENDED, LATE], fleet=fleet, process=process)
