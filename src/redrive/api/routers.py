"""Makes routers of the API, and gives an HTTP application their routes as they are.

``include_router`` would make each of them once more, for each application, with its first request: a third of a second,
and what FastAPI remembers of that keeps the application in memory for good.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from redrive import features
from redrive.api.problems import PROBLEMS
from redrive.errors import ConfigError
from redrive.kernel.feature import Feature


def api_router(prefix: str, tag: str) -> APIRouter:
    """Returns a router of the API: its errors are problem documents, and its routes are named as all are."""
    return APIRouter(prefix=prefix, tags=[tag], responses=PROBLEMS, generate_unique_id_function=operation_id)


def add_routers(api: FastAPI, routers: Iterable[APIRouter]) -> None:
    """Adds the routes of ``routers`` to an application. They take what is an application's own from ``request.app``."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.operation_id is None:
                route.operation_id = operation_id(route)
        api.router.routes.extend(router.routes)


def operation_id(route: Any) -> str:
    """Returns the name of a route in the OpenAPI document, of which also titles of answers are made."""
    return f"{route.tags[0]}-{route.name}" if route.tags else str(route.name)


def routers_of(feature: Feature) -> list[APIRouter]:
    """Returns what ``Feature.routes`` names: a router or several. Those below ``/api/worker`` and ``/api/internal`` ask
    for the worker's secret, all others for a token; what lies elsewhere could hide routes of others, and is refused."""
    if feature.routes is None:
        return []
    found = features.load(feature.routes)
    routers = [found] if isinstance(found, APIRouter) else list(found)
    homes = (f"/api/{feature.name}", f"/api/worker/{feature.name}")
    inside = (*(f"{home}/" for home in homes), f"/api/internal/{feature.called}_", f"/api/internal/{feature.called}/")
    paths = [getattr(route, "path", "") for router in routers for route in router.routes]
    for path in (*(router.prefix for router in routers if router.prefix), *paths):
        if not f"{path}/".replace("-", "_").startswith(inside):
            raise ConfigError(
                f"the routes of feature {feature.name!r} are below {path}, not {' or '.join(homes)}",
                hint=f'APIRouter(prefix="{homes[0]}")',
            )
    return routers
