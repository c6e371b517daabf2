"""Settings: the effective values and where each comes from."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import ThePage
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/settings")
async def settings(page: ThePage) -> Response:
    return await page.render("settings.html", settings=page.operator.settings.list())
