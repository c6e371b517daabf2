"""Dead letters and failed tasks: looked at, previewed, retried (O1 to O3, O8)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request

from redrive.api import models as m
from redrive.api import shown
from redrive.api.access import Opened, Operator, TheApp, Viewer, actor, is_own_page
from redrive.api.filters import FilterIn, Text, WhichFailed, known
from redrive.api.problems import PROBLEMS
from redrive.errors import InvalidInput
from redrive.kernel.store import Query as LetterQuery
from redrive.ops import failed, inspect
from redrive.ops.access import Role

router = APIRouter(prefix="/api/tasks", tags=["failures"], responses=PROBLEMS)


class RetryIn(FilterIn):
    """Which tasks, by filters or by the token of a preview. With ``taskIds`` and no ``limit``, all of those."""

    task_ids: list[str] | None = None
    limit: int | None = None
    dry_run: bool = False
    plan_token: str | None = None
    reason: str | None = None
    actor: str | None = None


@router.get("/dead-letters")
async def dead_letters(
    store: Opened, app: TheApp, caller: Viewer, which: WhichFailed,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50, before: Text = None,
) -> m.DeadLetterPage:  # fmt: skip
    """The records of terminal failures, newest first; they stay when the task is retried."""
    if which.failure_type is not None or which.ids is not None:
        raise InvalidInput("dead letters are not filtered by failureType or taskIds", hint="/api/tasks/failed is")
    query = LetterQuery(
        (), which.kind, which.queue, which.group, which.scope, which.trace_id, which.error_code, which.error_reason,
        which.fingerprint, limit, None if before is None else inspect.parse_id(before), which.dead_reason,
    )  # fmt: skip
    found = await store.dead_letters(query)
    following = found[-1].id if len(found) == limit else None
    return m.DeadLetterPage(dead_letters=shown.letters(found, caller, app), next_before=following)


@router.get("/dead-letters/preview")
async def preview(
    request: Request, store: Opened, app: TheApp, caller: Viewer, which: WhichFailed,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    pageSize: Annotated[int, Query(ge=1, le=500)] = 50,
    planToken: Annotated[str | None, Query(description="Pages of an earlier preview.")] = None,
) -> m.PreviewOut:  # fmt: skip
    """What a retry with the same filters would reach, page by page. Changes no task. For those who may retry, the first
    page brings a plan token: with it, further pages and the retry are about exactly this set, whatever fails later."""
    # A plan is written down: not for pages of other sites, which read nothing, but could fill the store.
    binds = planToken is None and page == 1 and caller.role >= Role.OPERATOR and is_own_page(request)
    bind = caller.name if binds else None
    which = await known(which, store, app)
    found = await failed.preview(store, which, page=page, page_size=pageSize, plan=planToken, bind=bind)
    return m.PreviewOut(
        total=found.total, page=found.page, page_size=found.page_size, pages=found.pages,
        task_ids=found.ids, tasks=shown.tasks(found.tasks, caller, app), plan_token=found.plan,
    )  # fmt: skip


@router.post("/dead-letters/retry")
async def retry(body: RetryIn, store: Opened, app: TheApp, caller: Operator) -> m.BatchOut:
    """Retry up to ``limit`` tasks that match (50 unless said, 500 at most), those that failed first. Only failed and
    cancelled tasks are touched; others that were named are answered, and audited, as skipped. What needs a second
    operator (everything, or more than ``REDRIVE_APPROVALS_ABOVE``) is refused with 409: begin it as an operation."""
    which = await known(body.failures(body.task_ids), store, app)
    if which == failed.EVERYTHING and body.plan_token is None:
        raise InvalidInput("say which tasks", hint="a filter, taskIds or a planToken; everything is a bulk operation")
    result = await failed.retry_matching(
        store, which, actor=actor(caller, body.actor), reason=body.reason, limit=body.limit, plan=body.plan_token,
        dry_run=body.dry_run, approvals_above=app.settings.approved_above,
    )  # fmt: skip
    return shown.batch(result)


@router.get("/failed")
async def list_failed(
    store: Opened, app: TheApp, caller: Viewer, which: WhichFailed, limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0, before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> m.FailedPage:  # fmt: skip
    """Tasks that are failed now, the latest first. ``nextBefore`` continues: stable while more tasks fail."""
    found = await failed.list_failed(store, which, limit=limit, offset=offset, before=before)
    total = await store.count_failed(which)
    return m.FailedPage(
        tasks=shown.tasks(found, caller, app), total=total, limit=limit, offset=offset,
        next_before=found[-1].failed_seq if len(found) == limit else None,
    )  # fmt: skip


@router.get("/failed/statistics")
async def statistics(store: Opened, caller: Viewer) -> m.FailureStatsOut:
    """How many are failed now, by kind, group, code, type, dead reason and fingerprint (the 100 largest)."""
    return m.FailureStatsOut.model_validate(await failed.statistics(store))
