"""Dead letters: the record of every terminal failure; it stays when its task is retried."""

from __future__ import annotations

from fastapi import Response

from redrive.console.filters import PAGE_SIZE, asked_of_failures, fields
from redrive.console.page import ThePage
from redrive.console.routes import pages_router
from redrive.kernel.operation import moment
from redrive.ops import views
from redrive.ops.filters import FILTERS
from redrive.ops.inspect import parse_id

router = pages_router()


@router.get("/dead-letters")
async def dead_letters(page: ThePage) -> Response:
    which, before = asked_of_failures(page, "before", of=FILTERS), page.query.get("before")
    known = await page.operator.failures.known(which)
    found = await page.operator.failures.dead_letters(
        known, limit=PAGE_SIZE, before=None if before is None else parse_id(before)
    )
    return await page.render(
        "dead_letters.html",
        which=fields(which),
        letters=[views.dead_letter(one, page.operator.sight) for one in found],
        newest=moment(found[0].dead_at) if found else "",
        before=found[-1].id if len(found) == PAGE_SIZE else None,
    )
