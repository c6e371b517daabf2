"""Alerts: what fires, what is silenced and by whom."""

from __future__ import annotations

from datetime import datetime

from fastapi import Response

from redrive.console.page import FieldRefused, TheForm, ThePage
from redrive.console.pages.causes import MUTES
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput
from redrive.ops.filters import parse_coming

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
    made = await page.operator.alerts.silence(rule, _end(page), queue, page.form.text("reason"))
    return page.back(f"{made.key} is silenced until {made.until:%Y-%m-%d %H:%M} UTC.")


@router.post("/alerts/unsilence")
async def unsilence(page: TheForm) -> Response:
    rule, queue = page.form.needed("rule", "the rule"), page.form.text("queue")
    await page.operator.alerts.unsilence(rule, queue, page.form.text("reason"))
    return page.back("The silence is over.")


@router.post("/alerts/test")
async def test(page: TheForm) -> Response:
    found = await page.operator.alerts.test()
    told = [f"{name}: {'sent' if fault is None else f'not sent, {fault}'}" for name, fault in found.items()]
    return page.back(f"{'; '.join(told)}.")


def _end(page: TheForm) -> datetime:
    """Returns when a silence ends: at the time that was written, else after the span that was chosen."""
    until, span = page.form.text("until"), MUTES.get(page.form.text("for") or "")
    if until is not None:
        try:
            return parse_coming(until, "until", page.now)
        except InvalidInput as error:
            raise FieldRefused("until", error.message, hint=error.hint) from None
    if span is None:
        raise InvalidInput(f"silence it for one of {', '.join(MUTES)}, or until a time")
    return page.now + span
