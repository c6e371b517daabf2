"""Serves what a process says of itself: where things are, whether it is alive and ready, its metrics."""

from __future__ import annotations

import hmac
import time
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from redrive.api.access import bearer, identify
from redrive.api.routers import operation_id
from redrive.app import App
from redrive.errors import RedriveError, StoreUnavailable
from redrive.observe.exposition import MetricsPage
from redrive.observe.feature_metrics import extend, metrics_of, table_of
from redrive.observe.samples import Samples
from redrive.ops.fleet_metrics import FleetMetrics, fleet_looks
from redrive.version import __version__
from redrive.worker.measure import measure
from redrive.worker.readiness import alive, readiness
from redrive.worker.worker import Worker

router = APIRouter(generate_unique_id_function=operation_id)
LET_IN_FOR_S = 5.0
OUTAGE_S = 3600.0
MOST_REMEMBERED = 100
WITHOUT_WORKER = "http"  # the label "worker" of what a process without one has counted


@router.get("/", include_in_schema=False)
async def root(request: Request) -> Response:
    with_console = hasattr(request.app.state, "live")
    if "text/html" in request.headers.get("accept", "") and with_console:
        return RedirectResponse("/ops/queue", 303)
    console = {"console": "/ops/queue"} if with_console else {}
    places = {
        "healthz": "/healthz",
        "readyz": "/readyz",
        "metrics": "/metrics",
        "tasks": "/api/tasks",
        "docs": "/docs",
    }
    return JSONResponse({"redrive": __version__, **console, **places})


@router.get("/healthz", tags=["health"])
async def healthz(request: Request) -> dict[str, Any]:
    """The process is alive."""
    return alive(request.app.state.worker, request.app.state.redrive.settings)


@router.get("/readyz", tags=["health"], responses={503: {"description": "Not ready, with reasons"}})
async def readyz(request: Request) -> JSONResponse:
    """The store and what features depend on can be reached, and the worker is at work."""
    state = request.app.state
    app: App = state.redrive
    others = {name: at.store for name, at in app.connections.items() if at is not app.at(None)}
    answer = await readiness(app, state.worker, state.last_seen, others=others)
    return JSONResponse(answer, 200 if answer["ready"] else 503)


class MetricsDoor:
    """Lets in whoever has the token of the metrics, or may look at all. Whom it has let in it does not ask the store
    about again for a moment: however many scrape, the store is asked as rarely as for figures. While the store does not
    answer, whoever was let in shortly before it is let in still: that is when the figures are wanted most."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    async def __call__(self, request: Request) -> None:
        app: App = request.app.state.redrive
        given = await bearer(request)
        secret = "" if given is None else given.credentials
        wanted = app.settings.metrics_token
        if wanted is not None and hmac.compare_digest(secret.encode(), wanted.encode()):
            return
        proxied = [name for name in ("x-forwarded-for", "forwarded", "x-real-ip") if name in request.headers]
        if not proxied and self._until.get(secret, 0.0) > time.monotonic():
            return
        try:
            await identify(request)
        except StoreUnavailable:
            if proxied or self._until.get(secret, -OUTAGE_S) + OUTAGE_S <= time.monotonic():
                raise
            return
        except RedriveError:
            self._until.pop(secret, None)  # revoked: not in an outage either
            raise
        if len(self._until) >= MOST_REMEMBERED:
            self._until.clear()
        self._until[secret] = time.monotonic() + LET_IN_FOR_S


def make_page(app: App, worker: Worker | None) -> MetricsPage:
    """Returns what ``/metrics`` of an application tells."""
    brought = metrics_of(app.features)

    def processes() -> dict[str, Samples]:
        # Without a worker, too: what features count in requests is told here, or by nobody.
        name, counted = (WITHOUT_WORKER, {}) if worker is None else (worker.id, measure(worker))
        return {name: extend(counted, [own for _, own in brought])}

    fleets = {
        # Features live on the default connection.
        name: FleetMetrics(one.store, fleet_looks(brought, app.settings) if one is app.at(None) else {}).samples
        for name, one in app.connections.items()
    }
    return MetricsPage(table_of(app.features), app.at(None).name, processes, fleets)


@router.get("/metrics", tags=["health"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """What this process has counted and the figures of the fleet, for Prometheus."""
    page: MetricsPage = request.app.state.metrics_page
    body, content_type = await page.make(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
