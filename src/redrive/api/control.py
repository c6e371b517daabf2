"""Routes for queues, kinds and groups of tasks: list, limit, pause, resume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Query, Request, Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.routers import api_router

router = api_router("/api", "control")
PAGE_SIZE = 500
After = Annotated[str, Query(max_length=120, description="The name after which the page begins.")]
Limit = Annotated[int, Query(ge=1, le=1000)]


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


@router.post("/task-groups/{name}/pause")
async def pause_group(name: str, by: By) -> m.HoldChange:
    """Tasks of this group, of whatever kind, also those that come later."""
    return await set_pause("group", name, True, by)


@router.post("/task-groups/{name}/resume")
async def resume_group(name: str, by: By) -> m.HoldChange:
    return await set_pause("group", name, False, by)


async def set_pause(target: str, name: str, on: bool, by: By) -> m.HoldChange:
    """Pauses (``on``) or resumes; returns whether that changed anything."""
    change = by.operator.control.pause if on else by.operator.control.resume
    return m.HoldChange(target=target, name=name, paused=on, changed=await change(target, name, by.reason))


def link_next(request: Request, response: Response, names: Sequence[str], limit: int) -> None:
    """Says where the page after this one is, if there are more names than it has."""
    if len(names) > limit:
        address = request.url.include_query_params(after=names[limit - 1], limit=limit)
        response.headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
