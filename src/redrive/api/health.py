"""Serves what a process says of itself: where things are, whether it is alive, whether it is ready."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from redrive.api.routers import operation_id
from redrive.app import App
from redrive.version import __version__
from redrive.worker.readiness import alive, readiness

router = APIRouter(generate_unique_id_function=operation_id)


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
