"""The overview: what is wrong, how much is going on, and how it has gone."""

from __future__ import annotations

from fastapi import Response

from redrive.app import App
from redrive.console.page import Page, ThePage
from redrive.console.regions import history
from redrive.console.regions import overview as regions
from redrive.console.routes import pages_router
from redrive.ops.connections import ConnectionTotals, totals_of

router = pages_router()
Everywhere = tuple[list[ConnectionTotals], dict[str, int]]


@router.get("")
async def overview(page: ThePage) -> Response:
    shown = await regions.look(page.operator)
    charts = await history.look(page.operator, page.query.get("period", "1h"))
    return await page.render("overview.html", shown=shown, history=charts, everywhere=await _everywhere(page))


async def _everywhere(page: Page) -> Everywhere | None:
    """Returns how each connection is, and the totals over all; None where there is only one."""
    app: App = page.request.app.state.redrive
    if not page.connections:
        return None
    return await totals_of(app.connections, lambda name: app.operator(page.visitor.caller, name))
