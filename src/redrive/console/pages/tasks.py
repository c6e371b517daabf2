"""Tasks: the list of all, and one task with everything that is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from fastapi import Response

from redrive.console.filters import PAGE_SIZE, failure_filter_of, fields
from redrive.console.page import Page, TheForm, ThePage
from redrive.console.routes import pages_router
from redrive.console.task_story import tell
from redrive.errors import ChangedMeanwhile, InvalidInput
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.reads import Query
from redrive.kernel.task import State, Task
from redrive.ops import filters, views
from redrive.ops.access import Role
from redrive.ops.filters import FILTERS
from redrive.ops.inspect import parse_id, parse_states
from redrive.ops.why import pauses

router = pages_router()
RELATED = 10


@router.get("/tasks")
async def tasks(page: ThePage) -> Response:
    which = failure_filter_of(page, "state", "before", of=FILTERS)
    chosen = parse_states([word]) if (word := page.query.get("state")) else ()
    state = chosen[0].value if chosen else None
    before = page.query.get("before")
    query = filters.query(
        which,
        states=chosen,
        limit=PAGE_SIZE,
        before=None if before is None else parse_id(before),
    )
    found = await page.operator.tasks.list(query)
    return await page.render(
        "tasks.html",
        which=fields(which),
        asked={**fields(which), **({"state": state} if state else {})},
        state=state,
        states=[one.value for one in State],
        tasks=[views.task(one, page.operator.sight) for one in found.tasks],
        before=found.next_before,
    )


@router.get("/tasks/{task_id}")
async def task(page: ThePage, task_id: str) -> Response:
    operator = page.operator
    story = await operator.tasks.show(parse_id(task_id))
    found = story.timeline.task
    related = [one for one in await _related(page, found) if one.tasks]
    panel = await page.extensions.panel(operator, found, page=page, now=page.now)
    told, seen = tell(story, operator.sight, page.now), await operator.tasks.seen(found.id)
    around = await operator.tasks.surroundings([found])
    holds = [] if around is None or found.state is State.RUNNING else pauses(found, around.holds)
    return await page.render("task.html", story=told, related=related, panel=panel, seen=seen, holds=holds)


@dataclass(slots=True, frozen=True)
class Related:
    """Other tasks that have something in common with one: the latest of them, and where all are."""

    name: str
    tasks: list[views.View]
    all: str


async def _related(page: Page, found: Task) -> list[Related]:
    """Returns tasks of the same trace, of the same scope, and those that are failed now by the same cause. What else
    tasks have in common is known to the feature that they belong to, and stands in its panel."""
    operator, limit = page.operator, RELATED + 1
    others = list[tuple[str, list[Task], str]]()
    if found.trace_id is not None:
        same = await operator.tasks.list(Query(trace_id=found.trace_id, limit=limit))
        others.append(("trace", same.tasks, page.link("/tasks", traceId=found.trace_id)))
    if found.scope is not None:
        same = await operator.tasks.list(Query(scope=found.scope, limit=limit))
        others.append(("scope", same.tasks, page.link("/tasks", scope=found.scope)))
    if found.error_fingerprint is not None:
        failed = await operator.failures.list(FailureFilter(fingerprint=found.error_fingerprint), limit=limit)
        others.append(("cause", failed.tasks, page.link(f"/causes/{found.error_fingerprint}")))
    return [
        Related(name, [views.task(one, operator.sight) for one in tasks if one.id != found.id][:RELATED], link)
        for name, tasks, link in others
    ]


@router.get("/tasks/{task_id}/{name}")
async def document(page: ThePage, task_id: str, name: str) -> Response:
    """Returns a payload or result as it is, however long."""
    if name not in ("payload", "result"):
        raise InvalidInput(f"a task has a payload and a result, no {name[:50]!r}")
    text = await page.operator.tasks.document(parse_id(task_id), name)
    return Response(text or "null", media_type="application/json")


@router.post("/tasks/{task_id}")
async def act(page: TheForm, task_id: str) -> Response:
    """Retry, cancel, pause, resume and forget, each by its button."""
    which, reason, operator = parse_id(task_id), page.form.text("reason"), page.operator
    operator.insist(Role.OPERATOR)  # before anything is said of what has changed
    seen = page.form.text("seen")
    if seen is not None:
        try:
            await operator.tasks.check_seen(which, seen)
        except ChangedMeanwhile as error:
            return page.back(f"Nothing was done: {error.message}.", "bad")
    match page.form.text("do"):
        case "retry":
            await operator.tasks.retry(which, reason)
            return page.back("It is queued again, with fresh attempts.")
        case "cancel":
            result = await operator.tasks.cancel([which], reason)
            asked = which in result.requested
            return _answer_form(page, which, result.skipped, "It was asked to stop." if asked else "It is cancelled.")
        case "pause":
            return _answer_form(page, which, (await operator.tasks.pause([which], reason)).skipped, "It is paused.")
        case "resume":
            return _answer_form(page, which, (await operator.tasks.resume([which], reason)).skipped, "It goes on.")
        case "forget":
            done = await operator.failures.forget([which], reason)
            return _answer_form(page, which, done.skipped, "It is given up; history keeps it for a while.")
    raise InvalidInput("there is no such thing to do with a task")


def _answer_form(page: TheForm, which: UUID, skipped: dict[UUID, str], done: str) -> Response:
    why = skipped.get(which)
    return page.back(done) if why is None else page.back(f"Nothing was done: {why}.", "bad")
