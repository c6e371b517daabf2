"""The overview: what is wrong, how much is going on, and how it has gone."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import ThePage
from redrive.console.place import home
from redrive.console.regions import connections, history
from redrive.console.regions import overview as regions
from redrive.console.routes import pages_router

router = pages_router()


@router.get("")
async def overview(page: ThePage) -> Response:
    shown = await regions.look(page.operator)
    charts = await history.look(page.operator, page.query.get("period", "1h"))
    everywhere = await connections.look(page.operator)
    return await page.render("overview.html", shown=shown, history=charts, everywhere=everywhere, first_page=home)
