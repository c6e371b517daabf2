"""Routes for the audit log: query, export, prune."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.encode import json_answer
from redrive.api.filters import WhichAudit
from redrive.api.routers import api_router
from redrive.ops.audit import file_name, make_audit
from redrive.ops.filters import one_of

router = api_router("/api/tasks/audit-logs", "audit")
_TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class PruneIn(m.In):
    """What is older than so many days, and matches."""

    older_than_days: float
    episode_id: str | None = None
    scope: str | None = None
    job_kind: str | None = None
    kind: str | None = None
    trace_id: str | None = None
    audit_action: str | None = None
    audit_actor: str | None = None
    batch_id: str | None = None
    since: str | None = None
    until: str | None = None
    dry_run: bool = False
    actor: str | None = None


@router.get("", response_model=m.AuditPage)
async def query(
    operator: TheOperator,
    which: WhichAudit,
    auditPage: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    auditPageSize: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """Who did what, newest first."""
    found = await operator.audit.query(which, page=auditPage, page_size=auditPageSize, before=before)
    return await json_answer(
        items=serialize.audits(found.rows, operator),
        page=found.page,
        page_size=found.page_size,
        more=found.more,
        next_before=found.next_before,
    )


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"description": "All of it, oldest first", "content": {name: {} for name in _TYPES.values()}}},
)
async def export(
    operator: TheOperator, which: WhichAudit, format: Literal["json", "csv", "jsonl"] = "json"
) -> StreamingResponse:
    """Everything that matches, streamed. Cells of the CSV that a spreadsheet would take for formulas begin with an
    apostrophe."""
    name = f'attachment; filename="{file_name(which, format, datetime.now(UTC))}"'
    lines = operator.audit.export(which, format)
    return StreamingResponse(lines, media_type=_TYPES[format], headers={"Content-Disposition": name})


@router.post("/prune")
async def prune(body: PruneIn, operator: TheOperator) -> m.PruneOut:
    """Remove old rows; a TASK_AUDIT_PRUNE_SUMMARY says who did, how many and which."""
    which = make_audit(
        action=body.audit_action,
        actor=body.audit_actor,
        bulk_id=body.batch_id,
        scope=one_of(body.episode_id, body.scope, "episodeId and scope"),
        kind=one_of(body.job_kind, body.kind, "jobKind and kind"),
        trace_id=body.trace_id,
        since=body.since,
        until=body.until,
    )
    acting = operator.named(body.actor)
    done = await acting.audit.prune(which, older_than_days=body.older_than_days, dry_run=body.dry_run)
    return m.PruneOut(matched=done.matched, removed=done.removed, dry_run=done.dry_run, batch_id=done.bulk_id)
