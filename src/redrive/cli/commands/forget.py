"""``redrive forget``: failed tasks are given up."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.support.by_id import by_id, one_way, refuse_pace
from redrive.cli.support.filters import filtered
from redrive.cli.support.start_operation import ANSWERS, Ask, Plan, asked, begin_bulk, carried_out
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import State
from redrive.ops.operations.lifecycle import How

MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Task ids, one or more.", show_default=False)]


@asked
@carried_out("rate", *ANSWERS)
@filtered
def forget(
    which: FailureFilter,
    how: How,
    ask: Ask,
    ids: MaybeIds = None,
    plan: Plan = None,
) -> None:
    """Give failed tasks up: they leave the list of failures for history, from where they can still be retried.

    Where there are several connections, filters need --connection NAME, or --connection all for an operation on each of
    them, looked at, asked for and audited by itself; --dry-run is about all. Ids and plans are found.
    """
    if one_way(ids, which, None, plan) == "ids":
        refuse_pace(how, ask)
        by_id(ids or [], "forgotten", (State.FAILED,), ask)
        return
    begin_bulk(Action.FORGET, which, ask, how, plan=plan)
