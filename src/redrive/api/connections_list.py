"""Serves ``/api/connections``: how each connection is, and the totals over all of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from redrive.api import models as m
from redrive.api.access import TheApp, the_caller
from redrive.api.shared_routes import api_router
from redrive.app import App
from redrive.ops.access import Caller, told
from redrive.ops.connections import ConnectionTotals, totals_of

router = api_router("/api/connections", "operations")


class ConnectionOut(m.Out):
    name: str
    default: bool
    ok: bool
    totals: dict[str, int]
    dead_letters: int
    code: str | None
    detail: str | None


class ConnectionsOut(m.Out):
    totals: dict[str, int]
    connections: list[ConnectionOut]


@router.get("", response_model=ConnectionsOut)
async def connections(app: TheApp, caller: Annotated[Caller, Depends(the_caller)]) -> ConnectionsOut:
    """Each connection with its tasks by state, and the totals of those that answer; one that does not says why."""
    found, together = await totals_of(app.connections, lambda name: app.operator(caller, name))
    return ConnectionsOut(totals=together, connections=[_shown(app, one, caller) for one in found])


def _shown(app: App, one: ConnectionTotals, caller: Caller) -> ConnectionOut:
    return ConnectionOut(
        name=one.name,
        default=app.at(None).name == one.name,
        ok=one.error is None,
        totals=one.totals,
        dead_letters=one.dead_letters,
        code=None if one.error is None else one.error.code,
        detail=None if one.error is None else told(one.error, caller.role)[0],
    )
