"""Workers: who is alive, what each runs and since when."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import ThePage
from redrive.console.routes import pages_router
from redrive.ops.workers import Standing, alone_at

router = pages_router()


@router.get("/workers")
async def workers(page: ThePage) -> Response:
    fleet = await page.operator.workers.fleet()
    drainable = [
        one.row.id for one in fleet if one.row.hears and one.row.drain_at is None and one.standing is Standing.ALIVE
    ]
    stats = await page.operator.health.stats()
    return await page.render(
        "workers.html", fleet=fleet, drainable=drainable, alone=alone_at(stats.overview), queues=stats.by("queue")
    )
