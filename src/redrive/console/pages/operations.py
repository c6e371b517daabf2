"""Bulk operations: live progress, what failed again, pause, resume, cancel."""

from __future__ import annotations

from fastapi import Response

from redrive.console.filters import PAGE_SIZE, whole_number
from redrive.console.page import ThePage
from redrive.console.regions import operations as regions
from redrive.console.routes import pages_router
from redrive.ops import views

router = pages_router()


@router.get("/operations")
async def operations(page: ThePage) -> Response:
    found = await page.operator.operations.records(limit=PAGE_SIZE, before=whole_number(page, "before"))
    return await page.render(
        "operations.html",
        operations=[views.operation(one) for one in found],
        before=found[-1].seq if len(found) == PAGE_SIZE else None,
    )


@router.get("/operations/{operation_id}")
async def operation(page: ThePage, operation_id: str) -> Response:
    shown = await regions.look(page.operator, operation_id)
    return await page.render("operation.html", shown=shown, rows=await regions.rows(page.operator, operation_id))
