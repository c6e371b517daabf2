"""Workers: who is alive, what each runs and since when; to have one end."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import TheForm, ThePage
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/workers")
async def workers(page: ThePage) -> Response:
    return await page.render("workers.html", fleet=await page.operator.control.fleet())


@router.post("/workers/drain")
async def drain(page: TheForm) -> Response:
    name = page.form.needed("name", "the worker")
    done = await page.operator.control.drain(name, page.form.text("reason"))
    return page.back(
        f"Worker {name} finishes what it runs, and ends." if done.asked else f"Worker {name} was asked before."
    )
