"""Schedules: periodic tasks, their next and last runs."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import ThePage
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/schedules")
async def schedules(page: ThePage) -> Response:
    return await page.render("schedules.html", schedules=await page.operator.schedules.list())
