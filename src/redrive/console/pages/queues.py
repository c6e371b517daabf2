"""Queues, kinds and groups: pause, resume, quotas and rates, circuits; schedules; workers."""

from __future__ import annotations

from fastapi import Response

from redrive.console.filters import NamedPause, by_name, refuse_unknown
from redrive.console.page import TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.errors import ChangedMeanwhile
from redrive.ops.workers import Standing, alone_at

router = pages_router()
LIMITS = {"concurrency": "the number at once", "rate_ms": "the spacing"}
MOST_CIRCUITS = 200


@router.get("/queues")
async def queues(page: ThePage) -> Response:
    refuse_unknown(page, "q", "queue", "kind", "pause")
    found = await page.operator.control.traffic()
    queues, next_queue = by_name(page, found.queues, "queue")
    kinds, next_kind = by_name(page, found.kinds, "kind")
    holds, next_hold = by_name(page, [NamedPause(f"{one.name} {one.target}", one) for one in found.holds], "pause")
    return await page.render(
        "queues.html",
        queues=queues,
        next_queue=next_queue,
        kinds=kinds,
        next_kind=next_kind,
        holds=[one.row for one in holds],
        next_hold=next_hold,
        circuits=(await page.operator.circuits.list())[:MOST_CIRCUITS],
    )


@router.post("/queues/limit")
async def limit(page: TheForm) -> Response:
    kind = page.form.needed("name", "the kind")
    given = {name: (page.form.whole(f"was_{name}", what), page.form.whole(name, what)) for name, what in LIMITS.items()}
    changes = {name: (was, now) for name, (was, now) in given.items() if was != now}
    try:
        await page.operator.control.change_limit(kind, **changes)
    except ChangedMeanwhile as error:  # the page anew, as it is now
        return page.back(f"Nothing was set: {error.message}.", "bad")
    return page.back(f"Limits of {kind} are set; they hold for all workers from now on.")


@router.get("/schedules")
async def schedules(page: ThePage) -> Response:
    return await page.render("schedules.html", schedules=await page.operator.schedules.list())


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
