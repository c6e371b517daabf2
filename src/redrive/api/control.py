"""Queues, kinds, groups of tasks, workers: what there is, paused, resumed, limited."""

from __future__ import annotations

from fastapi import APIRouter

from redrive.api import models as m
from redrive.api import shown
from redrive.api.access import By, TheOperator
from redrive.api.problems import PROBLEMS

router = APIRouter(prefix="/api", tags=["control"], responses=PROBLEMS)


@router.get("/queues")
async def queues(operator: TheOperator) -> list[m.QueueOut]:
    """Every queue that has or had tasks, is served, is paused, or is named by the application."""
    return [shown.queue(found) for found in await operator.control.queues()]


@router.get("/kinds")
async def kinds(operator: TheOperator) -> list[m.KindOut]:
    """Every kind, with its totals, limits and pause."""
    return [shown.kind(found) for found in await operator.control.kinds()]


@router.put("/kinds/{name}/limits")
async def limits(name: str, body: m.LimitsIn, operator: TheOperator) -> m.KindOut:
    """What the whole fleet may do with a kind, from now on; what is left out is unlimited."""
    acting = operator.named(body.actor)
    return shown.kind(await acting.control.set_limit(name, concurrency=body.concurrency, rate_ms=body.rate_limit_ms))


@router.post("/queues/{name}/pause")
async def pause_queue(name: str, by: By) -> m.HoldChange:
    """Nothing of it is claimed any more; what runs goes on."""
    return await _turn("queue", name, True, by)


@router.post("/queues/{name}/resume")
async def resume_queue(name: str, by: By) -> m.HoldChange:
    return await _turn("queue", name, False, by)


@router.post("/kinds/{name}/pause")
async def pause_kind(name: str, by: By) -> m.HoldChange:
    return await _turn("kind", name, True, by)


@router.post("/kinds/{name}/resume")
async def resume_kind(name: str, by: By) -> m.HoldChange:
    return await _turn("kind", name, False, by)


@router.post("/task-groups/{name}/pause")
async def pause_group(name: str, by: By) -> m.HoldChange:
    """Tasks of this group, of whatever kind, also those that come later."""
    return await _turn("group", name, True, by)


@router.post("/task-groups/{name}/resume")
async def resume_group(name: str, by: By) -> m.HoldChange:
    return await _turn("group", name, False, by)


@router.get("/workers")
async def workers(operator: TheOperator) -> list[m.WorkerOut]:
    """Workers that were seen within the last day."""
    return [shown.worker(found) for found in await operator.control.workers()]


async def _turn(target: str, name: str, on: bool, by: By) -> m.HoldChange:
    change = by.operator.control.pause if on else by.operator.control.resume
    return m.HoldChange(target=target, name=name, paused=on, changed=await change(target, name, by.reason))
