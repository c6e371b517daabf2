"""Metrics of features: named after them, made of what a worker has counted, or read from the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import ConfigError
from redrive.feature import Feature, Settings, Store
from redrive.feature.metrics import FeatureMetrics, Metric, Samples, Scope, Type, put
from redrive.observe.feature_metrics import metrics_of, table_of
from redrive.observe.metrics import TABLE
from tests.api.conftest import served
from tests.metrics.conftest import parsed, value
from tests.worker.conftest import drain

pytestmark = pytest.mark.anyio
PAID = Metric("shop_paid_total", Type.COUNTER, "Orders that were paid.", ("shop",))
OPEN = Metric("shop_open", Type.GAUGE, "Orders that wait for their money.", scope=Scope.FLEET)


def process(worker: Samples) -> Samples:
    found: Samples = {}
    for (queue, kind, outcome, _), n in worker.get("redrive_attempts_total", {}).items():
        if kind == "PAY" and outcome == "completed":
            put(found, PAID.name, n, queue)
    put(found, "redrive_worker_slots", 1000.0)  # somebody else's, and not taken
    return found


async def fleet(store: Store, settings: Settings) -> Samples:
    return {OPEN.name: {(): float(len(await store.counts()))}, "redrive_fleet_up": {(): 7.0}}


metrics = FeatureMetrics([PAID, OPEN], fleet=fleet, process=process)
misnamed = FeatureMetrics([Metric("orders_total", Type.COUNTER, "Others.")])
SHOP = Feature("shop", "tests.metrics", metrics="tests.metrics.test_features:metrics")


async def test_they_are_served_with_the_others(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/x.db", features=[SHOP])

    @app.task("PAY")
    async def pay(ctx: Context) -> None: ...

    await app.enqueue_many([("PAY", None)] * 2)
    worker = await drain(app)
    async with served(app, worker) as client:
        page = parsed((await client.get("/metrics")).text)
    assert value(page, "shop_paid_total", shop="default", worker=worker.id) == 2
    assert value(page, "shop_open") == 1
    assert value(page, "redrive_worker_slots") == 5
    assert value(page, "redrive_fleet_up") == 1


@pytest.mark.parametrize("name", ["misnamed", "fleet"])
def test_others_names_and_values_are_refused(name: str) -> None:
    feature = Feature("shop", "tests.metrics", metrics=f"tests.metrics.test_features:{name}")
    with pytest.raises(ConfigError):
        metrics_of([feature])


def test_the_table_has_them() -> None:
    bare: Any = Feature("bare", "tests.metrics")
    assert table_of([bare, SHOP]) == (*TABLE, PAID, OPEN)
