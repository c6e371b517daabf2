"""``redrive retry``: failed or cancelled tasks run again, by id, or all that match."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from redrive.cli.support.by_id import by_id, one_way, refuse_pace
from redrive.cli.support.filters import Forgotten, filtered
from redrive.cli.support.start_operation import ANSWERS, PACE, Ask, Plan, asked, begin_bulk, carried_out
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.operation import Action
from redrive.ops.operations.lifecycle import How
from redrive.ops.operations.selection import RETRYABLE_STATES

IdsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Task ids, one or more; all is the same as --all.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All failures, also of tasks cancelled since (needs approval).")]


@asked
@carried_out(*PACE, *ANSWERS)
@filtered
def retry(
    which: FailureFilter,
    how: How,
    ask: Ask,
    ids: IdsOrAll = None,
    everything: All = False,
    plan: Plan = None,
    forgotten: Forgotten = False,
) -> None:
    """Run failed or cancelled tasks again, with fresh attempts: by id, or as a bulk operation all that match.

    Filters, --all and plans are about dead letters: of tasks that are failed now, or cancelled after they had failed. A
    task that was cancelled and never failed is retried by its id. What was forgotten or purged comes back by its id, or
    with --forgotten.

    Where there are several connections, filters need --connection NAME, or --connection all for an operation on each of
    them, looked at, asked for and audited by itself; --dry-run is about all. Ids and plans are found.
    """
    if ids == ["all"]:
        ids, everything = None, True
    way = one_way(ids, which, everything, plan)
    if forgotten and way in ("ids", "plan"):
        raise typer.BadParameter("--forgotten is for filters and --all: ids and plans say which tasks they mean")
    if way == "ids":
        refuse_pace(how, ask)
        by_id(ids or [], "retried", RETRYABLE_STATES, ask)
        return
    if forgotten:
        which = replace(which, forgotten=True)
    begin_bulk(Action.RETRY, which, ask, how, plan=plan)
