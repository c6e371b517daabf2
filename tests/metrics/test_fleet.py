"""Figures of the fleet: asked for rarely, the same from everybody, left out where the store does not answer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive import App, Context
from redrive.errors import StoreUnavailable
from redrive.kernel.alerts.book import Alert, Book
from redrive.kernel.alerts.slo import Objective, ServiceLevel
from redrive.kernel.diagnosis import Level
from redrive.kernel.documents import to_document
from redrive.kernel.figures import CircuitFigures, Figures, KindFigures
from redrive.kernel.reads import WorkerRow
from redrive.kernel.series import MOST_SERIES, OTHER
from redrive.kernel.task import State
from redrive.observe import metrics
from redrive.observe.exposition import render
from redrive.observe.samples import Samples
from redrive.ops.fleet_metrics import FRESH_FOR_S, MOST_QUEUES, FleetMetrics, samples_of
from tests.api.conftest import served
from tests.metrics.conftest import parsed, value
from tests.worker.conftest import drain

NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Watch:
    """A store of which only figures are asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Figures | Exception = Figures(NOW)

    async def figures(self) -> Figures:
        self.asked += 1
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def get(self) -> Any:
        return self


async def test_however_many_scrape_the_store_is_asked_once() -> None:
    store, now = Watch(), [100.0]
    fleet = FleetMetrics(store.get, clock=lambda: now[0])
    await asyncio.gather(*(fleet.samples() for _ in range(50)))
    assert store.asked == 1
    now[0] += FRESH_FOR_S - 0.1
    await fleet.samples()
    assert store.asked == 1
    now[0] += 0.2
    await asyncio.gather(*(fleet.samples() for _ in range(50)))
    assert store.asked == 2


async def test_a_store_that_does_not_answer_has_no_figures() -> None:
    store, now = Watch(), [0.0]
    fleet = FleetMetrics(store.get, clock=lambda: now[0])
    assert len(await fleet.samples()) > 5
    store.answer = StoreUnavailable("gone")
    now[0] += FRESH_FOR_S
    for _ in range(3):
        assert await fleet.samples() == {"redrive_fleet_up": {(): 0.0}}
    assert store.asked == 2, "an outage is not asked about more often either"


async def test_what_fails_in_a_feature_is_left_out() -> None:
    async def fine(_: Any) -> Samples:
        return {"shop_orders": {(): 3.0}}

    async def broken(_: Any) -> Samples:
        raise LookupError("no such table")

    found = await FleetMetrics(Watch().get, {"broken": broken, "shop": fine}).samples()
    assert found["shop_orders"] == {(): 3.0} and found["redrive_fleet_up"] == {(): 1.0}


def test_kinds_beyond_the_bound_are_other_and_the_same_for_all() -> None:
    kinds = [KindFigures("q", f"K{number:03}", {State.QUEUED: 1}) for number in range(MOST_SERIES + 3)]
    first, second = (samples_of(Figures(NOW, list(order))) for order in (kinds, kinds[::-1]))
    assert first == second
    assert len(first[metrics.ENQUEUED.name]) == MOST_SERIES + 1
    assert first[metrics.ENQUEUED.name]["q", OTHER] == 3


def test_a_queue_that_nobody_serves() -> None:
    def worker(name: str, seen: float, **more: Any) -> WorkerRow:
        at = NOW - timedelta(seconds=seen)
        return WorkerRow(name, "host", 1, ("served", "idle"), 4, 2, "1", at, at, more.get("stopping", False))

    figures = Figures(NOW, [KindFigures("served", "A", {}), KindFigures("left", "A", {State.QUEUED: 5})])
    figures.workers = [worker("a", 1), worker("b", 20), worker("c", 1, stopping=True)]
    found = samples_of(figures)
    assert found[metrics.WORKERS.name] == {("left",): 0.0, ("served",): 1.0, ("idle",): 1.0}
    assert found[metrics.FLEET_SLOTS.name] == {(): 4.0}
    assert found[metrics.SILENT.name] == {(): 1.0}


def test_paused_queues_are_bounded() -> None:
    figures = Figures(NOW, [], paused_queues=[f"q{n:04}" for n in reversed(range(MOST_QUEUES + 5))])
    paused = samples_of(figures)[metrics.PAUSED.name]
    assert len(paused) == MOST_QUEUES and ("q0000",) in paused, "the same ones for everybody who looks"


def test_every_metric_of_the_fleet_is_filled() -> None:
    figures = Figures(NOW, [KindFigures("q", "A", {State.QUEUED: 1})], paused_queues=["q"], horizon=3.0)
    figures.failed_by_code, figures.failed_by_type = {"C": 1}, {"network": 1}
    figures.paused_kinds, alert = ["A"], Alert("failed", "q", Level.WARNING, "x", 1, NOW, fired=NOW)
    figures.circuits = [CircuitFigures("far", ("A",), 5.0, 1)]
    book = Book(at=NOW, alerts={alert.key: alert}, services={"q": ServiceLevel(Objective(), burn={"1h": 1.0})})
    figures.alerts = {"book": (1, to_document(book))}
    filled = set(samples_of(figures))
    assert filled == {metric.name for metric in metrics.TABLE if metric.scope is metrics.Scope.FLEET}
    body, _ = render(metrics.TABLE, "default", {}, {"default": samples_of(figures)})
    assert value(parsed(body.decode()), "redrive_fleet_tasks", queue="q", kind="A", state="paused") == 1


async def test_redrive_up_serves_them(app: App) -> None:
    @app.task("SEND")
    async def send(ctx: Context) -> None: ...

    await app.enqueue_many([("SEND", None)] * 3)
    worker = await drain(app)
    await app.enqueue("SEND")
    async with served(app, worker) as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        page = parsed(answer.text)
        assert value(page, "redrive_fleet_up") == 1
        assert value(page, "redrive_fleet_enqueued_total", queue="default", kind="SEND") == 4
        assert value(page, "redrive_fleet_completed_total", queue="default", kind="SEND") == 3
        assert value(page, "redrive_fleet_tasks", queue="default", kind="SEND", state="queued") == 1
        assert value(page, "redrive_tasks_claimed_total", worker=worker.id, kind="SEND") == 3
        newer = await client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
        assert newer.headers["content-type"].startswith("application/openmetrics-text")
        assert newer.text.endswith("# EOF\n")
