"""Bulk operations: live progress, what failed again, pause, resume, cancel."""

from __future__ import annotations

from fastapi import Response

from redrive.console.filters import PAGE_SIZE, whole_number
from redrive.console.page import TheForm, ThePage
from redrive.console.regions import operations as regions
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput
from redrive.ops import views

router = pages_router()


@router.get("/operations")
async def operations(page: ThePage) -> Response:
    found = await page.operator.operations.list(limit=PAGE_SIZE, before=whole_number(page, "before"))
    return await page.render(
        "operations.html",
        operations=[views.operation(one) for one in found],
        before=found[-1].seq if len(found) == PAGE_SIZE else None,
    )


@router.get("/operations/{operation_id}")
async def operation(page: ThePage, operation_id: str) -> Response:
    shown = await regions.look(page.operator, operation_id)
    return await page.render("operation.html", shown=shown, rows=await regions.rows(page.operator, operation_id))


@router.post("/operations/{operation_id}")
async def act(page: TheForm, operation_id: str) -> Response:
    service, reason = page.operator.operations, page.form.text("reason")
    match page.form.text("do"):
        case "pause":
            await service.pause(operation_id, reason)
            return page.back("Paused; what it has done stays done.")
        case "resume":
            await service.resume(operation_id, reason)
            return page.back("It goes on.")
        case "cancel":
            await service.cancel(operation_id, reason)
            return page.back("Stopped; what it has done stays done.")
        case "put_back":
            begun = await service.put_back(operation_id, reason)
            told = "They are put back." if begun.approval is None else "It waits for a second person."
            return page.go(page.link(f"/operations/{begun.operation.id}"), told)
    raise InvalidInput("there is no such thing to do with an operation")
