"""``redrive approvals``: what waits for a second operator, listed, approved, rejected."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import look_at, refuse_place
from redrive.cli.support.follow import say_obstacles
from redrive.cli.support.operation_words import (
    Before,
    answers_text,
    approval_document,
    changing,
    following,
    having_approval,
)
from redrive.cli.support.options import AppName, Json, Url, list_command
from redrive.kernel.records import Record
from redrive.kernel.wording import counted
from redrive.ops import approvals
from redrive.ops.operations.consequences import Obstacle
from redrive.ops.operator import Operator

approvals_cli = typer.Typer(
    help="What waits for a second operator: list, approve, reject.", invoke_without_command=True
)


@approvals_cli.callback()
def list_approvals(
    context: typer.Context,
    pending: Annotated[bool, typer.Option("--pending", help="Only what waits.")] = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 50,
    before: Before = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """What was asked for, and what became of it."""
    if context.invoked_subcommand is not None:
        return
    states = (approvals.PENDING,) if pending else ()

    async def look(own: Operator) -> tuple[list[Record], datetime, dict[str, list[Obstacle]]]:
        asked = await own.approvals.list(states=states, limit=limit, before=before)
        return asked, await own.health.now(), {one.id: await own.approvals.obstacles(one) for one in asked}

    refuse_place(url, app, before=before)
    looked = look_at(url, app, look)
    found = looked.latest(lambda answer: answer[0], lambda record: record.created_at, limit)
    if json:
        rest = None if looked.everywhere else following([record for _, record in found], limit)
        items = [
            looked.document(
                name,
                approval_document(record) | {"warnings": [o.document for o in looked.found[name][2][record.id]]},
            )
            for name, record in found
        ]
        output.emit_list(items, rest, **looked.missing)
        return
    if not found:
        output.say(("nothing waits for approval" if pending else "nothing was asked for") + looked.without)
        return
    output.table(
        ["id", *looked.column, "state", "action", "#number", "asked by", "#ago", "decided by", "because", "reason"],
        [
            (
                r.id,
                *looked.cell(name),
                "expired" if approvals.expired(r, looked.found[name][1]) else r.state,
                r.body.get("title") or r.body["action"],
                r.body["total"],
                r.body["requested_by"],
                output.ago(r.created_at),
                r.body["decided_by"] or "",
                r.body["needed"],
                "; ".join(
                    [*filter(None, [r.body["reason"]]), *answers_text(r.body.get("fixed"), r.body.get("idempotent"))]
                ),
            )
            for name, r in found
        ],
    )
    for name, r in found:
        if warned := looked.found[name][2][r.id]:
            output.say(f"{r.id}:")
            say_obstacles(warned)


list_command(approvals_cli, list_approvals)


async def _approve(own: Operator, approval_id: str, reason: str | None) -> tuple[Record, list[Obstacle]]:
    record = await own.approvals.approve(approval_id, reason)
    return record, await own.approvals.obstacles(record)


async def _reject(own: Operator, approval_id: str, reason: str | None) -> tuple[Record, list[Obstacle]]:
    return await own.approvals.reject(approval_id, reason), []


def _decided(decided: tuple[Record, list[Obstacle]], json: bool) -> None:
    record, warned = decided
    if json:
        output.emit(approval_document(record) | {"warnings": [one.document for one in warned]})
        return
    operation, title = record.body["operation"], approvals.title(record)
    if operation is None:
        output.say(f"approved: {title}: done" if record.state == approvals.APPROVED else f"{record.state}: {title}")
    elif record.state == approvals.APPROVED:
        output.say(
            f"approved: {record.body['action']} of {counted(record.body['total'])} begins",
            output.suggest(f"watch it with: redrive operations watch {operation}"),
        )
        say_obstacles(warned)
    else:
        output.say(f"{record.state}: operation {operation} is cancelled; nothing was done")


changing(
    approvals_cli,
    "approve",
    _approve,
    _decided,
    having_approval,
    "Agree, as somebody else than who asked; it begins at once.",
)
changing(
    approvals_cli,
    "reject",
    _reject,
    _decided,
    having_approval,
    "Refuse; the operation is cancelled.",
)
