"""Serves ``/api/tasks/ops``: the figures of an operations page in one call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Response
from pydantic import Field

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import TheOperator
from redrive.api.encode import json_answer
from redrive.api.filters import WhichAudit, WhichFailed
from redrive.api.paging import PAGE_SIZE
from redrive.api.shared_routes import api_router
from redrive.ops.inspect import Stats

router = api_router("/api/tasks", "operations")
RECENT_ROWS = 20


class OpsOut(m.Out):
    totals: dict[str, int]
    queues: dict[str, dict[str, int]]
    kinds: dict[str, dict[str, int]]
    dead_letters: int
    forgotten: int = Field(description="Of the cancelled tasks: those that somebody forgot or purged.")
    recent_failures: list[m.TaskOut]
    recent_dead_letters: list[m.DeadLetterOut]
    recent_audit_logs: list[m.AuditOut]
    audit_page: int
    audit_page_size: int
    audit_more: bool


def _largest(stats: Stats) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    return stats.largest("queue", PAGE_SIZE), stats.largest("kind", PAGE_SIZE)


@router.get("/ops", response_model=OpsOut)
async def ops(
    operator: TheOperator,
    which: WhichFailed,
    rows: WhichAudit,
    auditPage: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    auditPageSize: Annotated[int, Query(ge=1, le=500)] = RECENT_ROWS,
) -> Response:
    """Exact totals, what failed lately, what operators did. The filters narrow the lists, not the totals. Of more than
    500 queues or kinds, those that have most tasks: `/api/queues` and `/api/kinds` list all of them."""
    stats = await operator.health.stats()
    # Dead letters are not known by type, id or failing of their task: these filters narrow the list of failures alone.
    known = replace(which, failure_type=None, ids=None, since=None, until=None)
    letters = await operator.failures.dead_letters(known, limit=RECENT_ROWS)
    log = await operator.audit.query(rows, page=auditPage, page_size=auditPageSize)
    queues, kinds = await asyncio.to_thread(_largest, stats)
    dead, forgotten = stats.dead_letters(), stats.forgotten()
    return await json_answer(
        totals=stats.totals(),
        queues=queues,
        kinds={
            name: {**row, "deadLetter": dead.get(name, 0), "forgotten": forgotten.get(name, 0)}
            for name, row in kinds.items()
        },
        dead_letters=sum(dead.values()),
        forgotten=sum(forgotten.values()),
        recent_failures=serialize.tasks((await operator.failures.list(which, limit=RECENT_ROWS)).tasks, operator),
        recent_dead_letters=serialize.letters(letters, operator),
        recent_audit_logs=serialize.audits(log.rows, operator),
        audit_page=log.page,
        audit_page_size=log.page_size,
        audit_more=log.more,
    )
