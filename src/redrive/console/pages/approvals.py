"""Approvals: what waits for a second person, exactly what would happen, approve or reject."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from fastapi import Response

from redrive.console.filters import PAGE_SIZE, whole_number
from redrive.console.page import Page, TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.errors import CauseUnknown, InvalidInput
from redrive.kernel.operation import Canary
from redrive.kernel.records import Record
from redrive.ops import views
from redrive.ops.approvals import PENDING

router = pages_router()


@router.get("/approvals")
async def approvals(page: ThePage) -> Response:
    found = await page.operator.approvals.records(limit=PAGE_SIZE, before=whole_number(page, "before"))
    pending = [one for one in found if one.state == PENDING]
    return await page.render(
        "approvals.html",
        about={one.id: await _about(page, one) for one in pending},
        decided_at={one.id: one.updated_at for one in found},
        approvals=[views.approval(one) for one in found],
        waiting={one.id: await page.operator.approvals.waiting_tasks(one) for one in found if one.state == PENDING},
        obstacles={one.id: await page.operator.approvals.obstacles(one) for one in pending},
        own={one.id for one in found if page.operator.approvals.is_own(one)},
        before=found[-1].seq if len(found) == PAGE_SIZE else None,
    )


@dataclass(slots=True, frozen=True)
class About:
    """What an approval is about, in words: the cause of its tasks, where it has one, and how they are retried."""

    cause: views.View | None
    canary: Canary | None
    rate: float | None


async def _about(page: Page, record: Record) -> About:
    fingerprint, cause = record.body["filter"].get("fingerprint"), None
    if fingerprint is not None:
        with suppress(CauseUnknown):  # it may have gone with its tasks
            cause = views.cause(await page.operator.causes.get(fingerprint), page.operator.sight)
    if record.body["operation"] is None:
        return About(None, None, None)
    operation = await page.operator.operations.get(record.body["operation"])
    return About(cause, operation.canary, operation.rate)


@router.post("/approvals/{approval_id}")
async def decide(page: TheForm, approval_id: str) -> Response:
    service, reason = page.operator.approvals, page.form.text("reason")
    match page.form.text("do"):
        case "approve":
            record = await service.approve(approval_id, reason)
            if record.operation is None:
                return page.back("Approved; it is done.")
            return page.go(page.link(f"/operations/{record.operation}"), "Approved; it has begun.")
        case "reject":
            await service.reject(approval_id, page.form.needed("reason", "why it is rejected"))
            return page.back("Rejected; nothing was done.")
    raise InvalidInput("approve or reject")
