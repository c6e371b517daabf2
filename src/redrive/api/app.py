"""Builds the HTTP application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException

from redrive.api import (
    alerts,
    approvals,
    audit,
    circuits,
    connections_list,
    dead_letters,
    doctor,
    erase,
    executors,
    failure_groups,
    failure_types,
    history,
    kinds,
    operations,
    overview,
    problems,
    queues,
    schedules,
    task_groups,
    tasks,
    worker_run,
    workers,
)
from redrive.api.access import WrongTokenCounter
from redrive.api.authentication import AuthenticationMiddleware, by_address, with_token
from redrive.api.body_limit import BodyLimit
from redrive.api.cookies import PlainCookies
from redrive.api.docs_page import add_docs
from redrive.api.feature_routes import routers_of
from redrive.api.headers import SecurityHeaders
from redrive.api.host_names import OwnNames
from redrive.api.metrics import MetricsDoor, add_metrics
from redrive.app import App
from redrive.errors import RedriveError
from redrive.version import __version__
from redrive.worker.readiness import LastSeen, alive, readiness
from redrive.worker.worker import Worker

ABOUT = """Durable background tasks whose failures can be found, explained and replayed.

Errors are RFC 9457 problem documents: `code` is for machines, `detail` and `hint` for people. Where there are tokens
(`redrive tokens create`), send `Authorization: Bearer …`; where there are none, `X-Actor` says who acts."""


def make_api(app: App, worker: Worker | None = None, *, hosts: Sequence[str] = (), open_door: bool = False) -> FastAPI:
    """Returns the HTTP application of an App, and of the worker in the same process if there is one.

    ``hosts`` are the host names that it serves. On a loopback address they keep web pages from reaching it by a name
    of their own that resolves to this machine. ``open_door``: as long as there are no tokens, everybody is let in;
    only for an address that nobody else can reach.
    """
    api = FastAPI(
        title="redrive",
        version=__version__,
        description=ABOUT,
        generate_unique_id_function=_name,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    add_docs(api)
    api.state.redrive = app
    api.state.worker = worker
    api.state.open_door = open_door
    api.state.wrong_tokens = WrongTokenCounter()
    api.state.triggered = worker_run.TriggeredWorker()
    # The last one added comes first: headers on every answer, then the name asked for, then who asks, then the body.
    api.add_middleware(PlainCookies)
    public = tuple(path for one in app.features for path in one.public)
    streamed = frozenset(path for one in app.features for path in one.streams)
    api.add_middleware(BodyLimit, streamed=streamed, unread=public)
    api.add_middleware(
        AuthenticationMiddleware,
        guards={
            "/metrics": MetricsDoor(),
            **dict.fromkeys(public, by_address),
            "/api/worker/": worker_run.with_secret,
            "/api/internal/": worker_run.with_secret,
            "/api": with_token,
        },
    )
    if hosts:
        api.add_middleware(OwnNames, allowed_hosts=list(hosts), public=public)
    api.add_middleware(SecurityHeaders)
    api.add_exception_handler(Exception, problems.on_crash)
    api.add_exception_handler(RedriveError, problems.on_error)
    api.add_exception_handler(RequestValidationError, problems.on_invalid)
    api.add_exception_handler(HTTPException, problems.on_http)
    # Names before ids: /api/tasks/ops is not the task "ops".
    for part in (
        tasks.router,
        overview.router,
        dead_letters.router,
        audit.router,
        executors.router,
        tasks.single,
        doctor.router,
        alerts.router,
        queues.router,
        kinds.router,
        task_groups.router,
        circuits.router,
        schedules.router,
        workers.router,
        connections_list.router,
        history.router,
        failure_groups.router,
        failure_types.router,
        operations.router,
        approvals.router,
        erase.router,
        worker_run.router,
    ):
        api.include_router(part)
    for router in (router for feature in app.features for router in routers_of(feature)):
        api.include_router(router)
    _add_health(api, app, worker)
    add_metrics(api, app, worker)
    return api


def _name(route: Any) -> str:
    return f"{route.tags[0]}-{route.name}" if route.tags else str(route.name)


def _add_health(api: FastAPI, app: App, worker: Worker | None) -> None:
    @api.get("/", include_in_schema=False)
    async def root(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", "") and hasattr(api.state, "live"):
            return RedirectResponse("/ops/queue", 303)
        console = {"console": "/ops/queue"} if hasattr(api.state, "live") else {}
        places = {
            "healthz": "/healthz",
            "readyz": "/readyz",
            "metrics": "/metrics",
            "tasks": "/api/tasks",
            "docs": "/docs",
        }
        return JSONResponse({"redrive": __version__, **console, **places})

    @api.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, Any]:
        """The process is alive."""
        return alive(worker, app.settings)

    seen = LastSeen()

    @api.get("/readyz", tags=["health"], responses={503: {"description": "Not ready, with reasons"}})
    async def readyz() -> JSONResponse:
        """The store and what features depend on can be reached, and the worker is at work."""
        others = {name: at.store for name, at in app.connections.items() if at is not app.at(None)}
        answer = await readiness(app, worker, seen, others=others)
        return JSONResponse(answer, 200 if answer["ready"] else 503)
