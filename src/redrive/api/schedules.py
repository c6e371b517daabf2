"""Routes for schedules: list, run now, pause, resume."""

from __future__ import annotations

from fastapi import Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import By, TheOperator
from redrive.api.encode import respond
from redrive.api.shared_routes import api_router

router = api_router("/api/schedules", "control")


@router.get("")
async def schedules(operator: TheOperator) -> list[m.ScheduleOut]:
    """Every schedule that an application has declared, by name."""
    return [serialize.schedule(found) for found in await operator.schedules.list()]


@router.post("/{name}/run", response_model=m.TaskOut, status_code=201)
async def run_now(name: str, by: By) -> Response:
    """Enqueues one task of it, beside its plan: the planned runs stay as they are."""
    task = await by.operator.schedules.run_now(name, by.reason)
    return await respond(serialize.task(task, by.operator), 201)


@router.post("/{name}/pause")
async def pause_schedule(name: str, by: By) -> m.HoldChange:
    """The runs that are planned from now on are left out, until it is resumed."""
    changed = await by.operator.schedules.pause(name, by.reason)
    return m.HoldChange(target="schedule", name=name, paused=True, changed=changed)


@router.post("/{name}/resume")
async def resume_schedule(name: str, by: By) -> m.HoldChange:
    changed = await by.operator.schedules.resume(name, by.reason)
    return m.HoldChange(target="schedule", name=name, paused=False, changed=changed)
