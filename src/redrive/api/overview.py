"""Routes for how it is and how it went: totals, what is wrong, history, and each connection."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query, Response
from pydantic import Field

from redrive.api import models as m
from redrive.api import serialize
from redrive.api.access import OnConnection, TheApp, TheOperator, the_caller
from redrive.api.encode import json_answer
from redrive.api.filters import WhichAudit, WhichFailed
from redrive.api.routers import api_router
from redrive.app import App
from redrive.ops.access import Caller, error_text_for
from redrive.ops.connections import ConnectionTotals, totals_of
from redrive.ops.doctor import worst
from redrive.ops.doctor_of_all import ConnectionFinding, examine_all
from redrive.ops.inspect import Stats
from redrive.ops.operator.control import PAGE_SIZE

router = api_router("/api", "operations")
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


@router.get("/tasks/ops", response_model=OpsOut)
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


@router.get("/doctor", response_model_exclude_unset=True)
async def doctor(
    operator: TheOperator,
    queue: Annotated[str | None, Query(max_length=200)] = None,
    connection: OnConnection = None,
) -> m.DoctorOut:
    """Of all connections, or of one, the worst first. ``queue`` leaves out what is about others; ``triage`` are the
    notes of those who know it."""
    if connection is None:
        found = await examine_all(operator, queue)
    else:
        found = [ConnectionFinding(one, operator.connection_label) for one in await operator.health.examine(queue)]
    return m.DoctorOut(
        worst=worst([one.finding for one in found]).value,
        findings=[serialize.finding(one.finding, operator, one.connection) for one in found],
        triage={name: asdict(note) for name, note in operator.health.triage(queue).items()},
    )


class RateOut(m.Out):
    completed: list[int]
    failed: list[int]
    failure_rate: float | None


class RatesOut(m.Out):
    """The last hour by the minute."""

    moments: list[datetime]
    kinds: dict[str, RateOut]
    queues: dict[str, RateOut]


@router.get("/rates")
async def rates(operator: TheOperator) -> RatesOut:
    """Tasks that ended in each minute of the last hour, by kind and by queue."""
    return RatesOut.model_validate(await operator.health.rates())


class ConnectionOut(m.Out):
    name: str
    default: bool
    ok: bool
    totals: dict[str, int]
    dead_letters: int
    code: str | None
    detail: str | None


class ConnectionsOut(m.Out):
    totals: dict[str, int]
    connections: list[ConnectionOut]


@router.get("/connections", response_model=ConnectionsOut)
async def connections(app: TheApp, caller: Annotated[Caller, Depends(the_caller)]) -> ConnectionsOut:
    """Each connection with its tasks by state, and the totals of those that answer; one that does not says why."""
    found, together = await totals_of(app.connections, lambda name: app.operator(caller, name))
    return ConnectionsOut(totals=together, connections=[_shown(app, one, caller) for one in found])


def _shown(app: App, one: ConnectionTotals, caller: Caller) -> ConnectionOut:
    return ConnectionOut(
        name=one.name,
        default=app.at(None).name == one.name,
        ok=one.error is None,
        totals=one.totals,
        dead_letters=one.dead_letters,
        code=None if one.error is None else one.error.code,
        detail=None if one.error is None else error_text_for(one.error, caller.role)[0],
    )
