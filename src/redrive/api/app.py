"""Builds the HTTP application."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from redrive.api import (
    audit,
    docs_page,
    executors,
    failure_groups,
    failures,
    health,
    operations,
    overview,
    problems,
    tasks,
    worker_run,
)
from redrive.api.access import AuthenticationMiddleware, WrongTokenCounter, by_address, with_token
from redrive.api.body_limit import BodyLimit
from redrive.api.declared import router_of
from redrive.api.middleware import OwnNames, PlainCookies, SecurityHeaders
from redrive.api.routers import add_routers, operation_id, routers_of
from redrive.app import App
from redrive.errors import RedriveError
from redrive.ops.operator.operator import service_of
from redrive.version import __version__
from redrive.worker.readiness import LastSeen
from redrive.worker.worker import Worker

ABOUT = """Durable background tasks whose failures can be found, explained and replayed.

Errors are RFC 9457 problem documents: `code` is for machines, `detail` and `hint` for people. Where there are tokens
(`redrive tokens create`), send `Authorization: Bearer …`; where there are none, `X-Actor` says who acts."""

# Names before ids: /api/tasks/ops is not the task "ops".
ROUTERS = (
    tasks.router,
    overview.router,
    failures.router,
    audit.router,
    executors.router,
    tasks.single,
    router_of(service_of("alerts"), "operations"),
    *(
        router_of(service_of(name), "control")
        for name in ("control", "circuits", "overview", "schedules", "tokens", "workers")
    ),
    router_of(service_of("failures"), "failures"),
    router_of(service_of("health"), "operations"),
    failure_groups.router,
    operations.router,
    *(router_of(service_of(name), "bulk") for name in ("approvals", "causes", "operations")),
    worker_run.router,
)


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
        generate_unique_id_function=operation_id,
        openapi_url=None,  # see docs_page
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
    )
    add_routers(api, (docs_page.router,))
    api.state.documents = docs_page.DocumentMaker()
    api.state.redrive = app
    api.state.worker = worker
    api.state.open_door = open_door
    api.state.last_seen = LastSeen()
    api.state.metrics_page = health.make_page(app, worker)
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
            "/metrics": health.MetricsDoor(),
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
    add_routers(api, ROUTERS)
    add_routers(api, (router for feature in app.features for router in routers_of(feature)))
    add_routers(api, (health.router,))
    return api
