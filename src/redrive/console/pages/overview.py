"""The overview: what is wrong, how much is going on, and how it has gone."""

from __future__ import annotations

import asyncio

from fastapi import Response

from redrive.console.addresses import home
from redrive.console.page import ThePage
from redrive.console.regions import connections, history
from redrive.console.regions import overview as regions
from redrive.console.routes import pages_router

router = pages_router()


@router.get("")
async def overview(page: ThePage) -> Response:
    # At the same time: a connection that hangs is waited for once.
    shown, everywhere = await asyncio.gather(regions.look(page.operator), connections.look(page.operator))
    charts = await history.look(page.operator, page.query.get("period", "1h"))
    return await page.render("overview.html", shown=shown, history=charts, everywhere=everywhere, first_page=home)
