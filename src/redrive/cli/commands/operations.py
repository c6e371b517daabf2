"""``redrive operations``: bulk operations, listed, watched, paused, resumed, cancelled."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.declared import group_of
from redrive.cli.support import output
from redrive.cli.support.connections import look_at, refuse_place
from redrive.cli.support.follow import follow, note_of, say_operation, show_with_tasks
from redrive.cli.support.operation_words import (
    Before,
    Id,
    following,
    having_operation,
    operation_document,
)
from redrive.cli.support.options import AppName, Json, Url, list_command
from redrive.cli.support.session import operate
from redrive.kernel.operation import Operation
from redrive.ops.operator.operations import OperationService

operations_cli = group_of(OperationService, without=("show",))


@operations_cli.callback(invoke_without_command=True)
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
    refuse_place(url, app, before=before)
    looked = look_at(url, app, lambda own: own.operations.list(limit=limit, before=before))
    found = looked.latest(lambda records: records, lambda record: record.created_at, limit)
    listed = [(name, Operation.of(record), record) for name, record in found]
    if json:
        items = [looked.document(name, operation_document(record)) for name, _, record in listed]
        rest = None if looked.everywhere else following([record for _, record in found], limit)
        output.emit_list(items, rest, **looked.missing)
        return
    if not listed:
        output.say(f"there are no operations{looked.without}")
        return
    output.table(
        ["id", *looked.column, "action", "status", "#done", "#of", "#begun", "by", "note"],
        [
            (
                o.id,
                *looked.cell(name),
                o.verb if o.work is None else f"{o.verb} of {o.work.subject}",
                o.status,
                o.done,
                o.total if o.total or o.work is None else "-",
                output.ago(r.created_at),
                o.actor,
                output.shorten(note_of(o), 200),
            )
            for name, o, r in listed
        ],
    )


list_command(operations_cli, list_operations)


@operations_cli.command("show")
def show_operation(operation: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One operation: what it is about, how far it has come, and what became of its tasks."""
    has = having_operation(operation)
    found, became = operate(url, app, lambda own: show_with_tasks(own, operation), has=has)
    say_operation(found, json, became)


@operations_cli.command("watch")
def watch(operation: Id, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Follow an operation and its tasks to their end. Exit code 1 when it was stopped or cancelled, or tasks failed
    again."""
    follow(operation, url, app, json)
