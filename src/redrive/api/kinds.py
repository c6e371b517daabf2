"""Routes for kinds: list, limit, pause, resume."""

from __future__ import annotations

from fastapi import Request, Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.paging import PAGE_SIZE, After, Limit, link_next
from redrive.api.pausing import set_pause
from redrive.api.shared_routes import api_router

router = api_router("/api", "control")


@router.get("/kinds")
async def kinds(
    operator: TheOperator, request: Request, response: Response, after: After = "", limit: Limit = PAGE_SIZE
) -> list[m.KindOut]:
    """Every kind, with its totals, limits and pause, by name. Where there are more, the header ``Link`` has the address
    of the next page."""
    found = await operator.control.kinds(after, limit + 1)
    link_next(request, response, [one.name for one in found], limit)
    return [serialize.kind(one) for one in found[:limit]]


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
