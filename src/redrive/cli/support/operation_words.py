"""Words what commands say about operations and approvals, and makes the commands that change one of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from redrive.cli.support import output
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.session import operate
from redrive.kernel.operation import Operation
from redrive.kernel.records import Record
from redrive.ops import views
from redrive.ops.access import Role
from redrive.ops.connections import Look, having
from redrive.ops.operations.outcome import RetryOutcome
from redrive.ops.operator import Operator
from redrive.ops.views import Sight

Id = Annotated[str, typer.Argument(metavar="ID", help="As the list gives it.")]
Before = Annotated[int | None, typer.Option("--before", metavar="N", min=1, help="Go on from the next of a list.")]
T = TypeVar("T")
Change = Callable[[Operator, str, str | None], Awaitable[T]]


def having_operation(id: str) -> Look[Sequence[str]]:
    """Returns what finds the connection that has an operation."""
    return having(id, lambda own: own.operations.record(id))


def having_approval(id: str) -> Look[Sequence[str]]:
    """Returns what finds the connection that has an approval."""
    return having(id, lambda own: own.approvals.show(id))


def changing(
    cli: typer.Typer,
    name: str,
    change: Change[T],
    say: Callable[[T, bool], None],
    finds: Callable[[str], Look[Sequence[str]]],
    text: str,
) -> None:
    """Makes a command that changes one operation or approval, on the connection that has it, and says what became of
    it."""

    def command(
        id: Id, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
    ) -> None:
        say(operate(url, app, lambda own: change(own, id, reason), by=by, has=finds(id)), json)

    cli.command(name, help=text)(command)


def following(found: Sequence[Record], limit: int) -> int | None:
    return found[-1].seq if len(found) == limit else None


def answers_text(fixed: str | None, idempotent: bool | None) -> list[str]:
    """Returns what its operator answered before it began, in words."""
    twice = [] if idempotent is None else [f"handlers are {'' if idempotent else 'not '}idempotent"]
    return [*([] if fixed is None else [f"fixed: {fixed}"]), *twice]


def operation_document(found: Record | Operation, became: RetryOutcome | None = None) -> dict[str, Any]:
    """Returns an operation as the JSON document of ``--json``: as over HTTP, and some by a second name."""
    seen = views.operation(found, became, Sight(Role.ADMIN))
    again = {} if became is None else {"failed_again": became.failed_again}
    return {**seen, "which": seen["filter"], "plan": seen["plan_token"], "approval": seen["approval_id"], **again}


def say_awaiting_approval(approval: Record, json: bool) -> None:
    """Says that an action of a feature waits for a second operator."""
    if json:
        output.emit({"approval": approval_document(approval)})
        return
    output.say(
        f"it waits for a second operator, because {approval.body['needed']}; nothing was done",
        output.suggest(f"somebody else: redrive approvals approve {approval.id} --by NAME"),
    )


def approval_document(record: Record) -> dict[str, Any]:
    """Returns an approval as the JSON document of ``--json``: as over HTTP, and one field by a second name."""
    seen = views.approval(record)
    return {**seen, "operation": seen["operation_id"]}
