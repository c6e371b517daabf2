"""Alerts: what fires, what is silenced and by whom."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import ThePage
from redrive.console.pages.causes import MUTES
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/alerts")
async def alerts(page: ThePage) -> Response:
    own = page.operator.alerts
    found, services = await own.at(page.now), await own.services()
    return await page.render("alerts.html", found=found, services=services, spans=tuple(MUTES), rules=own.rules)
