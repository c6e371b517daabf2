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
from redrive.api.filters import AuditFields, WhichAudit
from redrive.api.routers import api_router
from redrive.kernel.audit import AuditFilter
from redrive.ops.audit import AUDIT_FILTERS, file_name, make_audit
from redrive.ops.filters import texts_of

router = api_router("/api/tasks/audit-logs", "audit")
_TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


class PruneIn(AuditFields):
    """What is older than so many days, and matches."""

    older_than_days: float
    dry_run: bool = False
    actor: str | None = None

    @property
    def which(self) -> AuditFilter:
        return make_audit(**texts_of(self.model_dump(by_alias=True), AUDIT_FILTERS))


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
    acting = operator.named(body.actor)
    done = await acting.audit.prune(body.which, older_than_days=body.older_than_days, dry_run=body.dry_run)
    return m.PruneOut.model_validate(done)
