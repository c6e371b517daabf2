"""Queues, kinds and groups: pause, resume, quotas and rates."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput

router = pages_router()
TARGETS = ("queue", "kind", "group")


@router.get("/queues")
async def queues(page: ThePage) -> Response:
    control = page.operator.control
    return await page.render(
        "queues.html", queues=await control.queues(), kinds=await control.kinds(), holds=await control.holds()
    )


@router.post("/queues/pause")
async def pause(page: TheForm) -> Response:
    target, name = _target(page), page.form.needed("name", "the name")
    new = await page.operator.control.pause(target, name, page.form.text("reason"))
    return page.back(f"Paused {target} {name}." if new else f"{target.capitalize()} {name} was paused already.")


@router.post("/queues/resume")
async def resume(page: TheForm) -> Response:
    target, name = _target(page), page.form.needed("name", "the name")
    was = await page.operator.control.resume(target, name, page.form.text("reason"))
    return page.back(f"Resumed {target} {name}." if was else f"{target.capitalize()} {name} was not paused.")


@router.post("/queues/limit")
async def limit(page: TheForm) -> Response:
    kind = page.form.needed("name", "the kind")
    concurrency = page.form.whole("concurrency", "the number at once")
    rate_ms = page.form.whole("rate_ms", "the spacing")
    await page.operator.control.set_limit(kind, concurrency=concurrency, rate_ms=rate_ms)
    return page.back(f"Limits of {kind} are set; they hold for all workers from now on.")


def _target(page: TheForm) -> str:
    found = page.form.needed("target", "what to pause")
    if found not in TARGETS:
        raise InvalidInput(f"only {', '.join(TARGETS)} can be paused here, not {found[:50]!r}")
    return found
