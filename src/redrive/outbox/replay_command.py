"""``redrive outbox replay``: failed events are tried again here and now, up to a limit."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.support.connections import on_chosen
from redrive.cli.support.filters import Forgotten
from redrive.cli.support.follow import say_outcomes
from redrive.cli.support.options import DryRun, Reason, Yes, confirm
from redrive.cli.support.progress import progress
from redrive.cli.support.start_operation import say_approval
from redrive.feature.cli import AppName, By, Json, Url, operate, output
from redrive.ops.operations.retry import RetryResult
from redrive.outbox.replay import DEFAULT_LIMIT, MOST, ReplayPlan
from redrive.outbox.service import OutboxService

Names = Annotated[list[str] | None, typer.Argument(metavar="PROJECTION", help="Which ones; else all.")]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        max=MOST,
        help=f"At most so many in all ({DEFAULT_LIMIT}). Who says how many is not asked again.",
    ),
]


def replay(
    projection: Names = None,
    limit: Limit = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
    forgotten: Forgotten = False,
) -> None:
    """Try failed events again, here and now: attempts, waits and errors begin anew, and who did it and why is kept.

    It is redrive replay for the queues of projections; redrive failed --queue outbox:NAME says why events failed.
    What was forgotten or purged is left out, unless --forgotten asks for it.
    Where there are several connections, --connection NAME says which, --connection all each of them in turn.
    """

    def here() -> None:
        _replay_here(projection or [], limit, forgotten, dry_run, yes, reason, by, url, app, json)

    on_chosen(url, app, here, looks=dry_run)


def _replay_here(
    names: list[str],
    limit: int | None,
    forgotten: bool,
    dry_run: bool,
    yes: bool,
    reason: str | None,
    by: str | None,
    url: str | None,
    app: str | None,
    json: bool,
) -> None:
    most = limit or DEFAULT_LIMIT
    plan = operate(url, app, lambda own: own.of(OutboxService).plan_replay(names, most, forgotten=forgotten), by=by)
    if dry_run or not plan.number:
        foreseen = operate(url, app, lambda own: own.of(OutboxService).foresee(plan), by=by)
        foreseen.dry_run = dry_run
        _say(foreseen, plan, json)
        return
    # Who says how many has said yes; and what needs a second operator is refused, whatever the first one answers.
    if limit is None and plan.approval is None:
        confirm(f"replay {_events(plan.number)} of {_where(plan)}?", yes)
    with progress("replayed", plan.number) as moved:
        done = operate(url, app, lambda own: own.of(OutboxService).replay(plan, reason, moved), by=by)
    _say(done, plan, json)


def _say(done: RetryResult, plan: ReplayPlan, json: bool) -> None:
    if json:
        output.emit(done.numbers)
    elif done.dry_run:
        output.say(f"{_events(done.matched)} of {_where(plan)} would be replayed")
        say_approval(done.needs_approval)
    elif not done.matched:
        output.say(f"nothing to replay of {_where(plan)}")
    else:
        skipped = f", {done.left} skipped" if done.left else ""
        output.say(f"{_events(done.done)} of {_where(plan)} replayed{skipped}")
        say_outcomes(done.bulk_ids if done.done else ())


def _events(number: int) -> str:
    return f"{number:,} event{'' if number == 1 else 's'}"


def _where(plan: ReplayPlan) -> str:
    """Returns the projections that have something to replay, with how many where there are several."""
    some = [part for part in plan.parts if part.number] or list(plan.parts)
    if len(some) == 1:
        return some[0].projection
    return ", ".join(f"{part.projection} ({part.number})" if part.number else part.projection for part in some)
