"""The HTTP application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

from redrive.api import health, problems, tasks
from redrive.app import App
from redrive.errors import RedriveError
from redrive.version import __version__
from redrive.worker.worker import Worker


def make_api(app: App, worker: Worker | None = None, *, hosts: Sequence[str] = ()) -> FastAPI:
    """The HTTP face of an application, and of the worker in the same process if there is one.

    ``hosts`` are the names it answers to. On a loopback address they keep web pages from reaching it by a name
    of their own that resolves to this machine.
    """
    api = FastAPI(title="redrive", version=__version__)
    api.state.redrive = app
    api.state.worker = worker
    if hosts:
        api.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    api.add_exception_handler(RedriveError, problems.on_error)
    api.include_router(tasks.router)
    _add_health(api, app, worker)
    return api


def _add_health(api: FastAPI, app: App, worker: Worker | None) -> None:
    @api.get("/", include_in_schema=False)
    async def root() -> dict[str, Any]:
        return {
            "redrive": __version__,
            "healthz": "/healthz",
            "readyz": "/readyz",
            "tasks": "/api/tasks",
            "docs": "/docs",
        }

    @api.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, Any]:
        """The process is alive."""
        return health.alive(worker)

    @api.get("/readyz", tags=["health"], responses={503: {"description": "Not ready, with reasons"}})
    async def readyz() -> JSONResponse:
        """The store answers, and the worker is at work."""
        reasons = await health.unready(app, worker)
        return JSONResponse({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)
