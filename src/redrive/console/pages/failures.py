"""Failures: causes first, then the tasks; preview what matches, tick rows, retry some or all; dead letters."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response

from redrive.console.declared import given_in
from redrive.console.filters import (
    FORGOTTEN,
    PAGE_SIZE,
    failure_filter_of,
    fields,
    of_failures,
    page_number,
    whole_number,
)
from redrive.console.page import FieldRefused, Page, TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.errors import InvalidInput
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import MOST_CANARIES, Action, Then, moment
from redrive.ops import views
from redrive.ops.causes import ALL, CAUSE_STATES, CausePage, order_of
from redrive.ops.failures import parse_ids
from redrive.ops.filters import FILTERS, command_options
from redrive.ops.given import gathered
from redrive.ops.inspect import parse_id
from redrive.ops.operations.lifecycle import HOW
from redrive.ops.operator.failures import MOST_COUNTED
from redrive.ops.operator.operations import BegunOperation

router = pages_router()
CAUSES = 20


@router.get("/failures")
async def failures(page: ThePage) -> Response:
    """Causes, and the tasks that match the filter; with words, what a search has found."""
    which = failure_filter_of(page, "status", "sort", "causes", "q", "before")
    status = page.query.get("status")
    words = page.query.get("q")
    operator = page.operator
    before = whole_number(page, "before")
    if words is not None:
        return await _search(page, words)
    meant = await operator.failures.known(which)
    sort, place = page.query.get("sort"), page.query.get("causes")
    causes = CausePage()
    if not before:
        causes = await operator.causes.list(meant, limit=CAUSES, status=status, order=sort, before=place)
    listed = await operator.failures.list(meant, limit=PAGE_SIZE, before=before, most=MOST_COUNTED)
    whole = not before and meant == FailureFilter(queue=meant.queue, kind=meant.kind)
    return await page.render(
        "failures.html",
        which=fields(which),
        times=page.query,
        status=status,
        statuses=(*CAUSE_STATES, ALL),
        words=None,
        causes=[views.cause(one, operator.sight) for one in causes.causes],
        listed=causes,
        sort=order_of(sort, status).value,
        place=place,
        types=await operator.failures.types("24h", meant.queue, meant.kind) if whole else None,
        tasks=[views.task(one, operator.sight) for one in listed.tasks],
        total=listed.total,
        more=listed.more,
        before=listed.tasks[-1].failed_seq if len(listed.tasks) == PAGE_SIZE else None,
        newest=None if before else listed.tasks[0].failed_seq if listed.tasks else "",
        search=None,
    )


async def _search(page: Page, words: str) -> Response:
    which = of_failures(page.query)
    found = await page.operator.failures.search(words, which, before=whole_number(page, "before"))
    sight = page.operator.sight
    return await page.render(
        "failures.html",
        which=fields(which),
        times=page.query,
        status=None,
        statuses=(*CAUSE_STATES, ALL),
        words=words,
        causes=[views.cause(one, sight) for one in found.causes],
        listed=None,
        sort=None,
        place=None,
        types=None,
        tasks=[views.task(one, sight) for one in found.tasks],
        total=None,
        more=False,
        before=found.before,
        newest=None,
        search=found,
    )


@router.get("/failures/preview")
async def preview(page: ThePage) -> Response:
    """What a retry by this filter would reach, page by page; nothing is changed. The plan of its first page binds the
    others and the retry to exactly this set."""
    which = failure_filter_of(page, "page", "plan", FORGOTTEN)
    number = page_number(page)
    plan = page.query.get("plan")
    found = await page.operator.failures.preview(which, page=number, page_size=PAGE_SIZE, plan=plan, most=MOST_COUNTED)
    foreseen = None
    if page.may_act and found.total:
        chosen = EVERY_FAILURE if found.plan else which
        foreseen = await page.operator.operations.preview(Action.RETRY, chosen, found.plan, counted=False)
    return await page.render(
        "preview.html",
        which=fields(which),
        otherwise=fields(replace(which, forgotten=None if which.forgotten else True)),
        found=found,
        tasks=[views.task(one, page.operator.sight) for one in found.tasks],
        foreseen=foreseen,
        everything=which.everything,
        options=command_options(which) or "--all",
        most_canaries=MOST_CANARIES,
    )


@router.post("/failures/retry")
async def retry(page: TheForm) -> Response:
    """Retries what was ticked, or begins an operation on all that matches."""
    if page.form.text("all"):
        return await _retry_all(page)
    ids = parse_ids(page.form.all("id"))
    if not ids:
        raise InvalidInput("nothing is ticked", hint="tick the tasks to retry")
    # What has failed again since the list was made is another failure, that nobody has looked at.
    plan = page.form.text("seen")
    until = None if plan is None else await page.operator.failures.planned_at(plan)
    return await _retry_ticked(page, FailureFilter(ids=tuple(ids), until=until), len(ids))


async def _retry_ticked(page: Page, which: FailureFilter, ticked: int) -> Response:
    """Begins an operation on these tasks: its page says what becomes of them."""
    service = page.operator.operations
    seen = await service.preview(Action.RETRY, which)
    if not seen.number:
        return page.back(
            "Nothing was done: none of what was ticked is failed any more, or it has failed again since.", "warn"
        )
    begun = await service.begin(
        Action.RETRY, which, reason=page.form.needed("reason", "why they are retried"), seen=seen
    )
    return _to_operation(page, begun, ticked)


async def _retry_all(page: Page) -> Response:
    plan = page.form.text("plan")
    which = of_failures({name: page.form.text(name) or "" for name in page.form.names()})
    begun = await begin(page, Action.RETRY, EVERY_FAILURE if plan else which, plan)
    return _to_operation(page, begun)


async def begin(page: Page, action: Action, which: FailureFilter, plan: str | None) -> BegunOperation:
    """Begins an operation as the form says: with a rate, a canary, and what was fixed."""
    given = given_in(page.form, [HOW])
    if given.get("canary") is None:  # the form always says what becomes of them
        if given.get("then") is Then.WAIT:
            raise FieldRefused(
                "canary", "it is not said how many to try first", hint="say so, or choose to go on with the others"
            )
        given = {name: value for name, value in given.items() if name not in ("percent", "then")}
    how, reason = gathered([HOW], given)["how"], page.form.needed("reason", "why this is done")
    return await page.operator.operations.begin(action, which, reason=reason, plan=plan, how=how)


def _to_operation(page: Page, begun: BegunOperation, ticked: int | None = None) -> Response:
    """Leads to the operation; ``ticked``: so many tasks were asked for one by one."""
    target, number = page.link(f"/operations/{begun.operation.id}"), begun.operation.total
    if begun.approval is not None:
        return page.go(target, "A second person has to agree before this begins.", "warn")
    if ticked is not None and number < ticked:
        said = f"{number} of the {ticked} that were ticked are retried; the others are no longer failed, "
        said += "or have failed again since."
        return page.go(target, said, "warn")
    return page.go(target, "It was begun; below is how far it has come.")


@router.get("/dead-letters")
async def dead_letters(page: ThePage) -> Response:
    which, before = failure_filter_of(page, "before", of=FILTERS), page.query.get("before")
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
