"""What is measured of webhooks: requests by what came of them, and the state of endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redrive.observe.feature_metrics import FeatureMetrics
from redrive.observe.metrics import Metric, Scope, Type
from redrive.observe.samples import Samples, put

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

ATTEMPTS = Metric(
    "redrive_webhooks_attempts_total", Type.COUNTER, "Requests to endpoints, by what came of them.", ("outcome",)
)
ENDED = Metric(
    "redrive_webhooks_deliveries_total", Type.COUNTER, "Deliveries that a worker is done with.", ("outcome",)
)
ENDPOINTS = Metric("redrive_webhooks_endpoints", Type.GAUGE, "Endpoints by state.", ("state",), scope=Scope.FLEET)
FAILING = Metric("redrive_webhooks_failing", Type.GAUGE, "Enabled endpoints that only fail.", scope=Scope.FLEET)


def process(worker: Samples) -> Samples:
    """Returns what follows from what the worker has counted anyway."""
    found: Samples = {}
    for (_, kind, outcome, _), n in worker.get("redrive_attempts_total", {}).items():
        if kind == "WEBHOOK_DELIVERY" and outcome in ("completed", "failed", "cancelled"):
            put(found, ENDED.name, n, outcome)
    return found


async def fleet(store: Store, settings: Any) -> Samples:
    """Returns what the store says, the same whoever is asked."""
    rows = {row["state"]: row for row in await store.sql.feature_rows("webhooks", "endpoint_numbers")}
    found: Samples = {FAILING.name: {(): float(rows["enabled"]["failing"] if "enabled" in rows else 0)}}
    for state in ("enabled", "disabled"):
        put(found, ENDPOINTS.name, float(rows[state]["n"] if state in rows else 0), state)
    return found


metrics = FeatureMetrics([ATTEMPTS, ENDED, ENDPOINTS, FAILING], fleet=fleet, process=process)
