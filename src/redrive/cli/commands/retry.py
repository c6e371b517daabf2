"""``redrive retry``, ``replay``, ``forget``, ``flush``, ``purge``, ``cancel``: what operators do with many tasks, or
with some by their ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.by_id import by_id, one_way, refuse_pace, report
from redrive.cli.support.connections import on_chosen
from redrive.cli.support.filters import Forgotten, filtered, filtered_by, matches_text
from redrive.cli.support.follow import say_outcomes
from redrive.cli.support.options import AppName, By, DryRun, Ids, Json, Reason, Url, Yes, confirm
from redrive.cli.support.session import operate, store_named
from redrive.cli.support.start_operation import (
    ANSWERS,
    PACE,
    Ask,
    Plan,
    begin_bulk,
    carried_out,
    say_approval,
    with_operation_options,
)
from redrive.kernel.failure_filter import EVERY_FAILURE, FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import State
from redrive.kernel.wording import counted
from redrive.ops.actions import Result
from redrive.ops.operations.lifecycle import How
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operations.selection import RETRYABLE_STATES, Selection
from redrive.ops.operator import Operator

MOST_REPLAYED = 100  # where nobody says how many
IdsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Task ids, one or more; all is the same as --all.", show_default=False),
]
All = Annotated[bool, typer.Option("--all", help="All failures, also of tasks cancelled since (needs approval).")]
MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Task ids, one or more.", show_default=False)]


@with_operation_options
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


@with_operation_options
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


@with_operation_options
@carried_out(*ANSWERS)
def flush(how: How, ask: Ask) -> None:
    """Give all failures up, once a second operator agrees. Where there are several connections:
    --connection NAME, or all for one on each."""
    begin_bulk(Action.FORGET, EVERY_FAILURE, ask, how, verb="flush")


@with_operation_options
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


@filtered
def replay(
    which: FailureFilter,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=1,
            max=1_000_000,
            help=f"At most so many ({MOST_REPLAYED}). Who says how many is not asked again.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
    forgotten: Forgotten = False,
) -> None:
    """Retry what matches here and now, up to a limit: failed tasks, the first failure first, then cancelled ones.

    It takes what retry takes by the same filters: tasks that are failed, or cancelled with a dead letter that matches.
    What was forgotten or purged is left out, unless --forgotten asks for it.
    Where there are several connections, --connection NAME says which, --connection all each of them in turn.
    """
    which = replace(which, forgotten=True) if forgotten else which
    on_chosen(url, app, lambda: _replay_here(which, limit, dry_run, yes, reason, by, url, app, json), looks=dry_run)


def _replay_here(
    which: FailureFilter,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    reason: str | None,
    by: str | None,
    url: str | None,
    app: str | None,
    json: bool,
) -> None:
    meant, foreseen = operate(url, app, lambda own: _look(own, which, limit or MOST_REPLAYED), by=by)
    if dry_run or not meant.number:
        foreseen.dry_run = dry_run
        _say_replayed(foreseen, meant.which, json)
        return
    # Who says how many has said yes; and what needs a second operator is refused, whatever the first one answers.
    if limit is None and foreseen.needs_approval is None:
        confirm(f"replay {counted(meant.number)} ({matches_text(meant.which, meant.cancelled)})?", yes)
    with output.progress_bar("replayed", meant.number) as moved:
        done = operate(url, app, lambda own: own.failures.replay(meant, reason=reason, progress=moved), by=by)
    _say_replayed(done, meant.which, json)


async def _look(own: Operator, which: FailureFilter, limit: int) -> tuple[Selection, RetryResult]:
    found = await own.failures.select(which, limit)
    return found, await own.failures.foresee(found)


def _say_replayed(done: RetryResult, which: FailureFilter, json: bool) -> None:
    about = matches_text(which, done.cancelled)
    if json:
        output.emit(done.numbers)
    elif done.dry_run:
        output.say(f"{counted(done.matched)} would be replayed ({about})")
        say_approval(done.needs_approval)
    elif not done.matched:
        output.say(f"nothing to replay ({about})")
    else:
        skipped = f", {done.left} skipped" if done.left else ""
        output.say(f"{counted(done.done)} replayed{skipped} ({about})")
        say_outcomes(done.bulk_ids if done.done else ())
