"""``redrive operations``: bulk operations, listed, watched, paused, resumed, cancelled."""

from __future__ import annotations

from redrive.cli.declared import group_of
from redrive.cli.support.follow import follow, say_operation, show_with_tasks
from redrive.cli.support.operation_words import (
    Id,
    having_operation,
)
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.ops.operator.operations import OperationService

operations_cli = group_of(OperationService, without=("show",))


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
