"""Adds the console to the HTTP application."""

from __future__ import annotations

from functools import cache

from fastapi import APIRouter, FastAPI, Request, Response

from redrive.api.routers import add_routers
from redrive.app import App
from redrive.console import declared, static_files
from redrive.console.addresses import ConnectionInAddress
from redrive.console.feature_pages import extensions_of
from redrive.console.live import Live, Sampler
from redrive.console.pages import (
    alerts,
    approvals,
    audit,
    causes,
    entrance,
    failures,
    find,
    operations,
    overview,
    queues,
    settings,
    stream,
    tasks,
)
from redrive.console.regions import changes, connections, history, menu
from redrive.console.regions import operations as operation_regions
from redrive.console.regions import overview as overview_regions
from redrive.console.routes import error_page, pages_router
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
    operations.router,
    approvals.router,
    audit.router,
    queues.router,
    settings.router,
    find.router,
    stream.router,
)

# What pages can listen to: a topic's name, and how its state is sampled. A sample maps names to texts: ``#id`` is the
# HTML of a region of the page, ``badge:NAME`` the number beside a page in the menu, other names values for a script.
TOPICS: dict[str, Sampler] = {
    "menu": menu.sampler,
    "overview": overview_regions.sampler,
    "connections": connections.sampler,
    "operation": operation_regions.sampler,
    "operations": operation_regions.list_sampler,
    "workers": changes.workers,
    "failures": changes.failures,
    "tasks": changes.tasks,
    "letters": changes.dead_letters,
    "audit": changes.audit,
    "task": changes.task,
    "cause": changes.cause,
    "history": history.sampler,
    "alerts": changes.of(changes.alerts),
    "approvals": changes.of(changes.approvals),
    "queues": changes.of(changes.queues),
    "schedules": changes.of(changes.schedules),
}


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
