"""The search field and the palette: jumps to a task, trace, scope, kind, queue, page or action."""

from __future__ import annotations

from fastapi import Response
from fastapi.responses import JSONResponse, RedirectResponse

from redrive.console.navigation import actions_named
from redrive.console.page import ThePage
from redrive.console.routes import pages_router

router = pages_router()


@router.get("/find")
async def find(page: ThePage) -> Response:
    """Goes to the only thing that fits; lists what fits when there are several."""
    words = page.query.get("q", "").strip()
    found = await page.operator.tasks.find(words) if words else []
    actions = actions_named(words, page.visitor.caller.role)
    if len(found) == 1 and not actions:
        return RedirectResponse(found_url(page, found[0].field, found[0].value), 303)
    listed = [("action", one.name, one.url) for one in actions]
    listed += [(one.field, one.value, found_url(page, one.field, one.value)) for one in found]
    return await page.render("find.html", words=words, found=listed)


@router.get("/find.json")
async def suggest(page: ThePage) -> Response:
    """What fits, for the palette."""
    words = page.query.get("q", "").strip()
    found = await page.operator.tasks.find(words) if words else []
    actions = [
        {"what": "action", "name": one.name, "url": one.url} for one in actions_named(words, page.visitor.caller.role)
    ]
    return JSONResponse(
        actions
        + [{"what": one.field, "name": one.value, "url": found_url(page, one.field, one.value)} for one in found]
    )


def found_url(page: ThePage, field: str, value: str) -> str:
    match field:
        case "task":
            return page.link(f"/tasks/{value}")
        case "cause":
            return page.link(f"/causes/{value}")
        case "operation":
            return page.link(f"/operations/{value}")
    return page.link("/tasks", **{field: value})
