"""Workers: who is alive, what each runs and since when."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import ThePage
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/workers")
async def workers(page: ThePage) -> Response:
    return await page.render("workers.html", fleet=await page.operator.control.fleet())
