"""One cause of failures: what it is, since when, where; and what people say about it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import Response

from redrive.console.filters import PAGE_SIZE
from redrive.console.page import Form, Page, TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.errors import TaskNotFound
from redrive.kernel.failure_filter import FailureFilter
from redrive.ops import views
from redrive.ops.access import Role

router = pages_router()
MUTES = {"1h": timedelta(hours=1), "8h": timedelta(hours=8), "1d": timedelta(days=1), "7d": timedelta(days=7)}


@router.get("/causes/{fingerprint}")
async def cause(page: ThePage, fingerprint: str) -> Response:
    operator = page.operator
    found = await operator.causes.get(fingerprint)
    listed = await operator.failures.list(FailureFilter(fingerprint=found.row.fingerprint), limit=PAGE_SIZE)
    try:
        sample = await operator.tasks.show(found.row.sample_task)
    except TaskNotFound:
        sample = None
    attempts = [] if sample is None else [one for one in sample.timeline.attempts if one.fingerprint == fingerprint]
    return await page.render(
        "cause.html",
        cause=views.cause(found, operator.sight),
        total=listed.total,
        tasks=[views.task(one, operator.sight) for one in listed.tasks],
        sample=views.attempt(attempts[-1], operator.sight) if attempts else None,
        parts=(await operator.causes.break_down(found.row.fingerprint)),
        mutes=tuple(MUTES),
    )


@router.post("/causes/{fingerprint}")
async def note(page: TheForm, fingerprint: str) -> Response:
    """Notes and owners, of which several people write: what somebody else has written meanwhile stays."""
    page.operator.insist(Role.OPERATOR)  # before anything is said of what a colleague has done
    said = _changed(page.form)
    lost = await _overwritten(page, fingerprint, said)
    if lost is not None:
        return page.back(lost, "bad")
    await page.operator.causes.annotate(fingerprint, page.form.text("reason"), **said)
    return page.back("Saved.")


def _changed(form: Form) -> dict[str, Any]:
    """Returns what somebody has changed in the form; what they left as it was is nothing that they say."""
    given = {name: form.text(name) for name in ("note", "owner")}
    return {name: value for name, value in given.items() if value != form.text(f"was_{name}")}


async def _overwritten(page: Page, fingerprint: str, said: dict[str, Any]) -> str | None:
    """Returns why nothing is saved, when a colleague has written something else since the page was made."""
    now = await page.operator.causes.get(fingerprint)
    for name, value in said.items():
        found = getattr(now, name)
        if found not in (page.form.text(f"was_{name}"), value):
            return f"Nothing was saved: meanwhile somebody has set the {name} to {found or 'nothing'!r}."
    return None
