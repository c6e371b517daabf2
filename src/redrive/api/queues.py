"""Routes for queues: list, pause, resume."""

from __future__ import annotations

from fastapi import Request, Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.paging import PAGE_SIZE, After, Limit, link_next
from redrive.api.pausing import set_pause
from redrive.api.shared_routes import api_router

router = api_router("/api", "control")


@router.get("/queues")
async def queues(
    operator: TheOperator, request: Request, response: Response, after: After = "", limit: Limit = PAGE_SIZE
) -> list[m.QueueOut]:
    """Every queue that has or had tasks, is served, is paused, or is named by the application, by name. Where there
    are more, the header ``Link`` has the address of the next page."""
    found = await operator.control.queues(after, limit + 1)
    link_next(request, response, [one.name for one in found], limit)
    return [serialize.queue(one) for one in found[:limit]]


@router.post("/queues/{name}/pause")
async def pause_queue(name: str, by: By) -> m.HoldChange:
    """Nothing of it is claimed any more; what runs goes on."""
    return await set_pause("queue", name, True, by)


@router.post("/queues/{name}/resume")
async def resume_queue(name: str, by: By) -> m.HoldChange:
    return await set_pause("queue", name, False, by)
