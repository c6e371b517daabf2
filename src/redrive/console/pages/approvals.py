"""Approvals: what waits for a second person, exactly what would happen, approve or reject."""

from __future__ import annotations

from fastapi import Response

from redrive.console.filters import PAGE_SIZE, whole_number
from redrive.console.page import TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput
from redrive.ops import views
from redrive.ops.approvals import PENDING

router = pages_router()


@router.get("/approvals")
async def approvals(page: ThePage) -> Response:
    found = await page.operator.approvals.list(limit=PAGE_SIZE, before=whole_number(page, "before"))
    return await page.render(
        "approvals.html",
        approvals=[views.approval(one) for one in found],
        waiting={one.id: await page.operator.approvals.waiting_tasks(one) for one in found if one.state == PENDING},
        own={one.id for one in found if page.operator.approvals.is_own(one)},
        before=found[-1].seq if len(found) == PAGE_SIZE else None,
    )


@router.post("/approvals/{approval_id}")
async def decide(page: TheForm, approval_id: str) -> Response:
    service, reason = page.operator.approvals, page.form.text("reason")
    match page.form.text("do"):
        case "approve":
            record = await service.approve(approval_id, reason)
            return page.go(page.link(f"/operations/{record.body['operation']}"), "Approved; it has begun.")
        case "reject":
            await service.reject(approval_id, page.form.needed("reason", "why it is rejected"))
            return page.back("Rejected; nothing was done.")
    raise InvalidInput("approve or reject")
