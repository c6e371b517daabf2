"""``redrive forget``: failed tasks are given up."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.support.by_id import by_id, one_way, refuse_pace
from redrive.cli.support.filters import filtered
from redrive.cli.support.start_operation import (
    Ask,
    Fixed,
    Idempotent,
    Plan,
    Rate,
    asked,
    begin_bulk,
)
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import State

MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Task ids, one or more.", show_default=False)]


@asked
@filtered
def forget(
    which: FailureFilter,
    ask: Ask,
    ids: MaybeIds = None,
    plan: Plan = None,
    rate: Rate = None,
    fixed: Fixed = None,
    idempotent: Idempotent = None,
) -> None:
    """Give failed tasks up: they leave the list of failures for history, from where they can still be retried.

    Where there are several connections, filters need --connection NAME, or --connection all for an operation on each of
    them, looked at, asked for and audited by itself; --dry-run is about all. Ids and plans are found.
    """
    if one_way(ids, which, None, plan) == "ids":
        refuse_pace(rate is not None or ask.wait)
        by_id(ids or [], "forgotten", (State.FAILED,), ask)
        return
    how = {"rate": rate, "plan": plan, "fixed": fixed, "idempotent": idempotent}
    begin_bulk(Action.FORGET, which, how, ask)
