"""Metrics of features: named after them, made of what a worker has counted, or read from the store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from redrive import App, Context
from redrive.errors import ConfigError, InvalidInput
from redrive.feature import Feature, Kinds, Settings, Store
from redrive.feature.metrics import FeatureMetrics, Metric, Samples, Scope, Type, count, put
from redrive.observe.feature_metrics import MOST_LABELS, Counted, metrics_of, table_of
from redrive.observe.metrics import TABLE
from tests.api.conftest import served
from tests.metrics.conftest import parsed, value
from tests.worker.conftest import drain

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


SENT = Metric("crates_sent_total", Type.COUNTER, "Crates that were sent.", ("how",))
NONE = Metric("crates_lost_total", Type.COUNTER, "Crates that were lost.")
kinds = Kinds()


@kinds.task("CRATES_LOOP")
async def on_the_loop(ctx: Context) -> None:
    count(SENT, "loop")


@kinds.task("CRATES_THREAD")
def in_a_thread(ctx: Context) -> None:
    count(SENT, "thread")


@kinds.task("CRATES_PROCESS", isolation="process")
def in_a_process(ctx: Context) -> None:
    count(SENT, "process", n=2)


@kinds.task("CRATES_DIES", isolation="process", max_attempts=1)
def in_one_that_dies(ctx: Context) -> None:
    count(SENT, "dies")
    os._exit(1)


crates = FeatureMetrics([SENT, NONE])
CRATES = Feature("crates", "tests.metrics", kinds=kinds, metrics="tests.metrics.test_features:crates")
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


async def test_what_handlers_count_is_served_wherever_they_ran(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/x.db", features=[CRATES])
    ran = ("CRATES_LOOP", "CRATES_THREAD", "CRATES_PROCESS", "CRATES_DIES")
    await app.enqueue_many([(kind, None) for kind in ran])
    worker = await drain(app)
    async with served(app, worker) as client:
        page = parsed((await client.get("/metrics")).text)
    counted = {how: value(page, SENT.name, how=how) for how in ("loop", "thread", "process", "dies")}
    assert counted == {"loop": 1, "thread": 1, "process": 2, "dies": 1}
    assert value(page, NONE.name) == 0, "from the start: the first one is a rise"


def test_what_is_no_counter_or_has_other_labels_is_refused() -> None:
    for metric, labels, n in ((OPEN, (), 1), (SENT, (), 1), (SENT, ("a", "b"), 1), (SENT, ("a",), -1)):
        with pytest.raises(InvalidInput):
            count(metric, *labels, n=n)


def test_there_are_only_so_many_labels() -> None:
    counted = Counted()
    for n in range(MOST_LABELS + 5):
        counted.add("a", 1.0, (str(n),))
    counted.add("a", 1.0, ("0",))
    assert (len(counted.samples()["a"]), counted.samples()["a"]["0",]) == (MOST_LABELS, 2.0)


@pytest.mark.parametrize("name", ["misnamed", "fleet"])
def test_others_names_and_values_are_refused(name: str) -> None:
    feature = Feature("shop", "tests.metrics", metrics=f"tests.metrics.test_features:{name}")
    with pytest.raises(ConfigError):
        metrics_of([feature])


def test_the_table_has_them() -> None:
    bare: Any = Feature("bare", "tests.metrics")
    assert table_of([bare, SHOP]) == (*TABLE, PAID, OPEN)
