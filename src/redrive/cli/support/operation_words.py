"""Words what commands say about operations and approvals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.kernel.operation import Operation
from redrive.kernel.records import Record
from redrive.ops import views
from redrive.ops.access import Role
from redrive.ops.connections import Look, having
from redrive.ops.operations.outcome import RetryOutcome
from redrive.ops.views import Sight

Id = Annotated[str, typer.Argument(metavar="ID", help="As the list gives it.")]


def having_operation(id: str) -> Look[Sequence[str]]:
    """Returns what finds the connection that has an operation."""
    return having(id, lambda own: own.operations.record(id))


def operation_document(found: Record | Operation, became: RetryOutcome | None = None) -> dict[str, Any]:
    """Returns an operation as the JSON document of ``--json``: as over HTTP, and some by a second name."""
    seen = views.operation(found, became, Sight(Role.ADMIN))
    again = {} if became is None else {"failed_again": became.failed_again}
    return {**seen, "which": seen["filter"], "plan": seen["plan_token"], "approval": seen["approval_id"], **again}


def say_awaiting_approval(approval: Record, json: bool) -> None:
    """Says that an action of a feature waits for a second operator."""
    if json:
        output.emit({"approval": views.approval(approval)})
        return
    output.say(
        f"it waits for a second operator, because {approval.body['needed']}; nothing was done",
        output.suggest(f"somebody else: redrive approvals approve {approval.id} --by NAME"),
    )
