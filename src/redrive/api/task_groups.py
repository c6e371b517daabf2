"""Routes for groups of tasks, as their producers name them: pause, resume."""

from __future__ import annotations

from redrive.api import models as m
from redrive.api.access import By
from redrive.api.pausing import set_pause
from redrive.api.shared_routes import api_router

router = api_router("/api", "control")


@router.post("/task-groups/{name}/pause")
async def pause_group(name: str, by: By) -> m.HoldChange:
    """Tasks of this group, of whatever kind, also those that come later."""
    return await set_pause("group", name, True, by)


@router.post("/task-groups/{name}/resume")
async def resume_group(name: str, by: By) -> m.HoldChange:
    return await set_pause("group", name, False, by)
