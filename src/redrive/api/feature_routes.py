"""Finds the routes of features."""

from __future__ import annotations

from fastapi import APIRouter

from redrive import features
from redrive.errors import ConfigError
from redrive.kernel.feature import Feature


def routers_of(feature: Feature) -> list[APIRouter]:
    """Returns what ``Feature.routes`` names: a router or several. Those below ``/api/worker`` and ``/api/internal`` ask
    for the worker's secret, all others for a token; what lies elsewhere could hide routes of others, and is refused."""
    if feature.routes is None:
        return []
    found = features.load(feature.routes)
    routers = [found] if isinstance(found, APIRouter) else list(found)
    homes = (f"/api/{feature.name}", f"/api/worker/{feature.name}")
    inside = (*(f"{home}/" for home in homes), f"/api/internal/{feature.called}_", f"/api/internal/{feature.called}/")
    for router in routers:
        if not f"{router.prefix}/".replace("-", "_").startswith(inside):
            raise ConfigError(
                f"the routes of feature {feature.name!r} are below {router.prefix or '/'}, not {' or '.join(homes)}",
                hint=f'APIRouter(prefix="{homes[0]}")',
            )
    return routers
