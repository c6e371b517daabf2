"""Alerts: what fires, what is silenced and by whom."""

from __future__ import annotations

from fastapi import Response

from redrive.console.page import TheForm, ThePage
from redrive.console.pages.causes import MUTES
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput

router = pages_router()


@router.get("/alerts")
async def alerts(page: ThePage) -> Response:
    found = await page.operator.alerts.look(page.now)
    services = await page.operator.alerts.services()
    rules = page.operator.alerts.rules
    return await page.render("alerts.html", found=found, services=services, spans=tuple(MUTES), rules=rules)


@router.post("/alerts/silence")
async def silence(page: TheForm) -> Response:
    rule, queue = page.form.needed("rule", "the rule"), page.form.text("queue")
    span = MUTES.get(page.form.text("for") or "")
    if span is None:
        raise InvalidInput(f"silence it for one of {', '.join(MUTES)}")
    made = await page.operator.alerts.silence(rule, page.now + span, queue, page.form.text("reason"))
    return page.back(f"{made.key} is silenced until {made.until:%Y-%m-%d %H:%M} UTC.")


@router.post("/alerts/unsilence")
async def unsilence(page: TheForm) -> Response:
    rule, queue = page.form.needed("rule", "the rule"), page.form.text("queue")
    await page.operator.alerts.unsilence(rule, queue, page.form.text("reason"))
    return page.back("The silence is over.")
