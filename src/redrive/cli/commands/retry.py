"""``redrive retry``, ``forget``, ``flush``, ``purge``, ``cancel``: what operators do with many tasks, or with some by
their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from redrive.cli.support.by_id import by_id, one_way, refuse_pace, report
from redrive.cli.support.filters import Forgotten, filtered, filtered_by
from redrive.cli.support.options import AppName, By, Ids, Json, Reason, Url
from redrive.cli.support.session import operate, store_named
from redrive.cli.support.start_operation import ANSWERS, PACE, Ask, Plan, asked, begin_bulk, carried_out
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import State
from redrive.ops.actions import Result
from redrive.ops.operations.lifecycle import How
from redrive.ops.operations.selection import RETRYABLE_STATES
from redrive.ops.operator import Operator

IdsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Task ids, one or more; all is the same as --all.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All failures, also of tasks cancelled since (needs approval).")]
MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Task ids, one or more.", show_default=False)]


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


@asked
@carried_out(*ANSWERS)
def flush(how: How, ask: Ask) -> None:
    """Give all failures up, once a second operator agrees. Where there are several connections:
    --connection NAME, or all for one on each."""
    begin_bulk(Action.FORGET, EVERY_FAILURE, ask, how, verb="flush")


@asked
@filtered_by("queue", "kind")
def purge(which: FailureFilter, ask: Ask) -> None:
    """Give waiting tasks up (queued, delayed, paused), once a second operator agrees. Where there are several
    connections: --connection NAME, or all for one on each."""
    if which == FailureFilter():
        raise typer.BadParameter("say which: --queue NAME, --kind KIND, or both")
    begin_bulk(Action.PURGE, which, ask)


def cancel(
    ids: Ids, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Cancel waiting tasks now, and ask running ones to stop."""

    async def act(own: Operator) -> Result:
        return await own.tasks.cancel(await own.tasks.meant(ids), reason)

    report(operate(url, app, act, by=by, ids=ids), "cancelled", json, store_named(url, app))
