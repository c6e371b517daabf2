"""Routes for failed tasks and dead letters: list, preview, retry; failures by type."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Query, Request, Response

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator, is_own_page
from redrive.api.encode import json_answer
from redrive.api.filters import FilterIn, Text, WhichFailed, WhichTasks
from redrive.api.routers import api_router
from redrive.kernel.failure_filter import EVERY_FAILURE
from redrive.ops import inspect
from redrive.ops.failures import FailureStats
from redrive.ops.views import DeadLetterView, Open, SkippedView, TaskView, View

router = api_router("/api", "failures")


class RetryIn(FilterIn):
    """Which tasks, by filters or by the token of a preview. With ``taskIds`` and no ``limit``, all of those."""

    task_ids: Annotated[list[str], m.FIRST_FAULT] | None = None
    limit: int | None = None
    dry_run: bool = False
    plan_token: str | None = None
    reason: str | None = None
    actor: str | None = None


@dataclass(slots=True, frozen=True)
class DeadLetterPage:
    dead_letters: list[DeadLetterView]
    next_before: UUID | None


@dataclass(slots=True, frozen=True)
class PreviewView:
    total: Annotated[int, Open("Exactly as many match.")]
    page: int
    page_size: int
    pages: int
    task_ids: list[UUID]
    tasks: list[TaskView]
    plan_token: Annotated[str | None, Open("With it, a retry acts on exactly this set.")]
    skipped: Annotated[
        list[SkippedView],
        Open("Not to be retried: those named in taskIds, and of this page those that their feature withholds."),
    ]
    warnings: Annotated[list[m.ObstacleOut], Open("With the first page: what would keep them from running.")]


@dataclass(slots=True, frozen=True)
class BulkView:
    """``matched`` are the tasks that are meant. Of a dry run ``wouldRetry`` says which of them could be retried now;
    it has no id, and retried none. ``batchId`` is an operation: ``GET /api/operations/{batchId}`` says what became
    of them."""

    batch_id: str | None
    matched: int
    retried: list[UUID]
    would_retry: list[UUID]
    skipped: list[SkippedView]
    dry_run: bool
    needs_approval: Annotated[str | None, Open("Of a dry run: why a second operator would have to agree.")] = None


@dataclass(slots=True, frozen=True)
class FailedPage:
    tasks: list[TaskView]
    total: int
    limit: int
    offset: int
    next_before: int | None


@router.get("/tasks/dead-letters", response_model=m.model_of(DeadLetterPage))
async def dead_letters(
    operator: TheOperator, which: WhichTasks, limit: Annotated[int, Query(ge=1, le=1000)] = 50, before: Text = None
) -> Response:
    """The records of terminal failures, newest first; they stay when the task is retried."""
    after = None if before is None else inspect.parse_id(before)
    found = await operator.failures.dead_letters(which, limit=limit, before=after)
    following = found[-1].id if len(found) == limit else None
    return await json_answer(dead_letters=serialize.letters(found, operator), next_before=following)


@router.get("/tasks/dead-letters/preview", response_model=m.model_of(PreviewView))
async def preview(
    request: Request,
    operator: TheOperator,
    which: WhichFailed,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    pageSize: Annotated[int, Query(ge=1, le=500)] = 50,
    limit: Annotated[int | None, Query(ge=1, le=500, description="That of the retry; else all that match.")] = None,
    planToken: Annotated[str | None, Query(description="Pages of an earlier preview.")] = None,
) -> Response:
    """What a retry with the same filters would reach, page by page. Changes no task. For those who may retry, the first
    page brings a plan token: with it, further pages and the retry are about exactly this set, whatever fails later.
    Of ``taskIds``, ``skipped`` says which would not be retried, and why."""
    # A plan is written down: not for pages of other sites, which read nothing, but could fill the store.
    found = await operator.failures.preview(
        which, page=page, page_size=pageSize, limit=limit, plan=planToken, bind=is_own_page(request)
    )
    warned = (
        await operator.operations.obstacles(EVERY_FAILURE if found.plan else which, found.plan)
        if page == 1 and found.total
        else []
    )
    return await json_answer(
        total=found.total,
        page=found.page,
        page_size=found.page_size,
        pages=found.pages,
        task_ids=found.ids,
        tasks=serialize.tasks(found.tasks, operator),
        plan_token=found.plan,
        skipped=serialize.skipped(found.skipped),
        warnings=[View(one.document) for one in warned],
    )


@router.post("/tasks/dead-letters/retry", response_model=m.model_of(BulkView))
async def retry(body: RetryIn, operator: TheOperator) -> Response:
    """Retry up to ``limit`` tasks that match (50 unless said, 500 at most), those that failed first. Only failed and
    cancelled tasks are touched; others that were named are returned, and audited, as skipped. What needs a second
    operator (everything, or more than ``REDRIVE_APPROVALS_ABOVE``) is refused with 409: begin it as an operation."""
    done = await operator.named(body.actor).failures.retry_matching(
        body.failures(body.task_ids), reason=body.reason, limit=body.limit, plan=body.plan_token, dry_run=body.dry_run
    )
    return await json_answer(
        batch_id=done.bulk_id,
        matched=done.matched,
        retried=done.retried,
        would_retry=done.would_retry,
        skipped=serialize.skipped(done.skipped),
        dry_run=done.dry_run,
        needs_approval=done.needs_approval,
    )


@router.get("/tasks/failed", response_model=m.model_of(FailedPage))
async def list_failed(
    operator: TheOperator,
    which: WhichFailed,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    offset: Annotated[int, Query(ge=0, le=10_000_000)] = 0,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    """Tasks that are failed now, the latest first. ``nextBefore`` continues: stable while more tasks fail."""
    found = await operator.failures.list(which, limit=limit, offset=offset, before=before)
    return await json_answer(
        tasks=serialize.tasks(found.tasks, operator),
        total=found.total,
        limit=limit,
        offset=offset,
        next_before=found.tasks[-1].failed_seq if len(found.tasks) == limit else None,
    )


@router.get("/tasks/failed/statistics", response_model=m.model_of(FailureStats))
async def statistics(operator: TheOperator, which: WhichTasks) -> Response:
    """How many are failed now, by kind, group, code, type, dead reason and fingerprint (the 100 largest). Totals are
    not kept by scope and trace."""
    return await json_answer(**asdict(await operator.failures.statistics(which)))
