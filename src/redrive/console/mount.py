"""Adds the console to the HTTP application."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, FastAPI, Request, Response

from redrive.api.shared_routes import add_routers
from redrive.app import App
from redrive.console import declared, static_files
from redrive.console.feature_pages import extensions_of
from redrive.console.live import Live
from redrive.console.pages import (
    alerts,
    approvals,
    audit,
    causes,
    dead_letters,
    entrance,
    failures,
    find,
    operations,
    overview,
    queues,
    schedules,
    settings,
    stream,
    tasks,
    workers,
)
from redrive.console.place import ConnectionInAddress
from redrive.console.refusals import error_page
from redrive.console.regions import menu
from redrive.console.routes import pages_router
from redrive.console.topics import TOPICS
from redrive.console.verification import Verification
from redrive.errors import PageUnknown

ROUTERS = (
    static_files.router,
    declared.router,
    entrance.router,
    overview.router,
    alerts.router,
    failures.router,
    causes.router,
    tasks.router,
    dead_letters.router,
    operations.router,
    approvals.router,
    audit.router,
    queues.router,
    workers.router,
    schedules.router,
    settings.router,
    find.router,
    stream.router,
)


def add_console(api: FastAPI) -> None:
    """Serves the console of ``api``'s application at ``/ops/queue``."""
    app: App = api.state.redrive
    if len(app.connections) > 1:
        api.add_middleware(ConnectionInAddress)
    api.state.extensions = added = extensions_of(app.features)
    api.state.live = Live(app, {**TOPICS, "menu": menu.with_numbers(added.numbers), **added.topics})
    api.state.verification = Verification()
    add_routers(api, (*ROUTERS, *added.routers, _rest()))


@cache
def _rest() -> APIRouter:
    """Returns the routes that come last: whatever else is asked for below the console is not there."""
    router = pages_router()

    @router.get("/{rest:path}")
    async def unknown(request: Request, rest: str) -> Response:
        return await error_page(request, PageUnknown("the console has no such page"))

    return router
