"""``redrive operations``: bulk operations, listed, watched, paused, resumed, cancelled."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.follow import follow, note_of, say_operation, show_with_tasks
from redrive.cli.support.operation_words import (
    Before,
    Id,
    changing,
    following,
    operation_document,
)
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.kernel.operation import Operation

operations_cli = typer.Typer(
    help="Bulk operations: list, show, watch, pause, resume, cancel.", invoke_without_command=True
)


@operations_cli.callback()
def list_operations(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="At most so many.")] = 20,
    before: Before = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Bulk operations, newest first."""
    if context.invoked_subcommand is not None:
        return
    found = operate(url, app, lambda own: own.operations.list(limit=limit, before=before))
    listed = [(Operation.of(record), record) for record in found]
    if json:
        output.emit_list([operation_document(operation) for operation, _ in listed], following(found, limit))
        return
    if not listed:
        output.say("there are no operations")
        return
    output.table(
        ["id", "action", "status", "#done", "#of", "#begun", "by", "note"],
        [
            (
                o.id,
                o.action,
                o.status,
                o.done,
                o.total,
                output.ago(r.created_at),
                o.actor,
                output.shorten(note_of(o), 200),
            )
            for o, r in listed
        ],
    )


@operations_cli.command("show")
def show_operation(operation: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One operation: what it is about, how far it has come, and what became of its tasks."""
    found, became = operate(url, app, lambda own: show_with_tasks(own, operation))
    say_operation(found, json, became)


@operations_cli.command("watch")
def watch(operation: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Follow an operation and its tasks to their end. Exit code 1 when it was stopped or cancelled, or tasks failed
    again."""
    follow(operation, url, app, json)


changing(
    operations_cli,
    "pause",
    lambda own, id, why: own.operations.pause(id, why),
    say_operation,
    "Let an operation rest; what it has done stays done.",
)
changing(
    operations_cli,
    "resume",
    lambda own, id, why: own.operations.resume(id, why),
    say_operation,
    "Go on with a paused operation.",
)
changing(
    operations_cli,
    "cancel",
    lambda own, id, why: own.operations.cancel(id, why),
    say_operation,
    "End an operation; what it has done stays done.",
)
