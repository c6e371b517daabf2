"""Routes for kinds: list, limit, pause, resume."""

from __future__ import annotations

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.pausing import set_pause
from redrive.api.shared_routes import api_router

router = api_router("/api", "control")


@router.get("/kinds")
async def kinds(operator: TheOperator) -> list[m.KindOut]:
    """Every kind, with its totals, limits and pause."""
    return [serialize.kind(found) for found in await operator.control.kinds()]


@router.put("/kinds/{name}/limits")
async def limits(name: str, body: m.LimitsIn, operator: TheOperator) -> m.KindOut:
    """What the whole fleet may do with a kind, from now on; what is left out is unlimited."""
    acting = operator.named(body.actor)
    return serialize.kind(
        await acting.control.set_limit(name, concurrency=body.concurrency, rate_ms=body.rate_limit_ms)
    )


@router.post("/kinds/{name}/pause")
async def pause_kind(name: str, by: By) -> m.HoldChange:
    return await set_pause("kind", name, True, by)


@router.post("/kinds/{name}/resume")
async def resume_kind(name: str, by: By) -> m.HoldChange:
    return await set_pause("kind", name, False, by)
