"""The audit log: who did what, when and why; export, prune, verify."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import Response
from fastapi.responses import StreamingResponse

from redrive.console.filters import AUDIT_FIELDS, PAGE_SIZE, of_audit, refuse_unknown, whole_number
from redrive.console.page import Page, TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.console.verification import Verification
from redrive.errors import InvalidInput
from redrive.kernel.audit import AuditFilter
from redrive.ops import views
from redrive.ops.audit import file_name

router = pages_router()
FORMS = {"json": "application/json", "csv": "text/csv"}


@router.get("/audit")
async def audit(page: ThePage) -> Response:
    found = await page.operator.audit.query(
        audit_filter_of(page, "before"), page_size=PAGE_SIZE, before=whole_number(page, "before")
    )
    return await page.render(
        "audit.html",
        asked={name: page.query[name] for name in AUDIT_FIELDS if name in page.query},
        rows=[views.audit_row(row, page.operator.sight) for row in found.rows],
        before=found.rows[-1].id if found.more else None,
        pruning=None,
        verdict=None,
    )


@router.get("/audit/export")
async def export(page: ThePage) -> Response:
    """Everything that matches, as a file, a piece at a time."""
    form = page.query.get("format", "json")
    if form not in FORMS:
        raise InvalidInput(f"there is no format {form[:20]!r}", hint="json or csv")
    which = audit_filter_of(page, "format")
    name = file_name(which, form, datetime.now(UTC))
    return StreamingResponse(
        page.operator.audit.export(which, form),
        media_type=FORMS[form],
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@router.get("/audit/verify")
async def verify(page: ThePage) -> Response:
    operator = page.operator
    operator.audit.archive()  # refuses who may not
    shared: Verification = page.request.app.state.verification
    verdict, age = await shared.verdict(operator.audit.verify)
    return await page.render("audit_verify.html", verdict=verdict, age=age)


@router.get("/audit/prune")
async def foresee_prune(page: ThePage) -> Response:
    """How many rows would be removed; nothing is."""
    days = _days(page.query.get("olderThanDays"))
    found = None
    if days is not None:
        found = await page.operator.audit.prune(
            audit_filter_of(page, "olderThanDays"), older_than_days=days, dry_run=True
        )
    asked = {name: page.query[name] for name in AUDIT_FIELDS if name in page.query}
    return await page.render("audit_prune.html", asked=asked, days=days, found=found)


@router.post("/audit/prune")
async def prune(page: TheForm) -> Response:
    given = {name: value for name in AUDIT_FIELDS if (value := page.form.text(name)) is not None}
    days = _days(page.form.needed("olderThanDays", "the age"))
    assert days is not None
    done = await page.operator.audit.prune(of_audit(given), older_than_days=days)
    return page.go(page.link("/audit"), f"Removed {done.removed} rows; one row tells of it.")


def audit_filter_of(page: Page, *others: str) -> AuditFilter:
    """Returns the filter of a page's address, which may also have these other fields."""
    refuse_unknown(page, *AUDIT_FIELDS, *others)
    return of_audit(page.query)


def _days(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{text[:20]!r} is no number of days") from None
