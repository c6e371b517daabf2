"""``redrive retry``, ``forget``, ``flush``, ``purge`` and ``replay``: one task, some, or very many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import typer

from redrive.cli.commands.cancel import report
from redrive.cli.support import output
from redrive.cli.support.confirm import DryRun, Yes, confirm
from redrive.cli.support.filters import filtered, filtered_by, worded
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.progress import progress
from redrive.cli.support.session import operate
from redrive.cli.support.start_operation import (
    Ask,
    First,
    Fixed,
    Idempotent,
    Percent,
    Plan,
    Rate,
    StopOnReturn,
    Wait,
    begin_bulk,
    pace,
    say_approval,
)
from redrive.kernel.failed import FailureFilter
from redrive.kernel.operation import Action
from redrive.kernel.task import State
from redrive.ops import actions, failed, inspect
from redrive.ops.operator import Operator
from redrive.ops.text import counted

MaybeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Task ids, one or more.", show_default=False)]
IdsOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Task ids, one or more; all is the same as --all.", show_default=False),
]
REPLAYED = 100
All = Annotated[bool, typer.Option("--all", help="Everything that is failed (needs approval).")]


@filtered
def retry(
    which: FailureFilter, ids: IdsOrAll = None, everything: All = False, plan: Plan = None, rate: Rate = None,
    canary: First = None, percent: Percent = None, stop_on_return: StopOnReturn = False, fixed: Fixed = None,
    idempotent: Idempotent = None, wait: Wait = False, dry_run: DryRun = False, yes: Yes = False,
    reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Run failed or cancelled tasks again, with fresh attempts: by id, or as a bulk operation all that match."""
    how = pace(rate, canary, percent, stop_on_return)
    ask = Ask(wait, dry_run, yes, reason, by, url, app, json)
    if ids == ["all"]:
        ids, everything = None, True
    if _one_way(ids, which, everything, plan) == "ids":
        _refuse_pace(any(how.values()) or wait)
        _by_id(ids or [], "retried", failed.RETRIED, ask)
        return
    begin_bulk(Action.RETRY, which, {**how, "plan": plan, "fixed": fixed, "idempotent": idempotent}, ask)


@filtered
def forget(
    which: FailureFilter, ids: MaybeIds = None, plan: Plan = None, rate: Rate = None, fixed: Fixed = None,
    idempotent: Idempotent = None, wait: Wait = False,
    dry_run: DryRun = False, yes: Yes = False, reason: Reason = None, by: By = None, url: Url = None,
    app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Give failed tasks up: they leave the list of failures for history, from where they can still be retried."""
    ask = Ask(wait, dry_run, yes, reason, by, url, app, json)
    if _one_way(ids, which, None, plan) == "ids":
        _refuse_pace(rate is not None or wait)
        _by_id(ids or [], "forgotten", (State.FAILED,), ask)
        return
    how = {"rate": rate, "plan": plan, "fixed": fixed, "idempotent": idempotent}
    begin_bulk(Action.FORGET, which, how, ask)


def flush(
    fixed: Fixed = None, idempotent: Idempotent = None, wait: Wait = False, dry_run: DryRun = False, yes: Yes = False,
    reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Give all failures up, once a second operator agrees."""
    ask = Ask(wait, dry_run, yes, reason, by, url, app, json)
    begin_bulk(Action.FORGET, FailureFilter(), {"fixed": fixed, "idempotent": idempotent}, ask, "flush")


@filtered_by("queue", "kind")
def purge(
    which: FailureFilter, wait: Wait = False, dry_run: DryRun = False, yes: Yes = False, reason: Reason = None,
    by: By = None, url: Url = None, app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Give waiting tasks up (queued, delayed, paused), once a second operator agrees."""
    if which == FailureFilter():
        raise typer.BadParameter("say which: --queue NAME, --kind KIND, or both")
    ask = Ask(wait, dry_run, yes, reason, by, url, app, json)
    begin_bulk(Action.PURGE, which, {}, ask)


@filtered
def replay(
    which: FailureFilter,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, max=1_000_000,
            help=f"At most so many ({REPLAYED}). Who says how many is not asked again.",
        ),
    ] = None,
    dry_run: DryRun = False, yes: Yes = False, reason: Reason = None, by: By = None, url: Url = None,
    app: AppName = None, json: Json = False,
) -> None:  # fmt: skip
    """Retry failed tasks here and now, the ones that failed first, up to a limit."""
    bound = operate(url, app, lambda own: own.failures.bound(which, limit or REPLAYED), by=by)
    if dry_run or not bound.number:
        told = failed.Replayed(bound.number, dry_run=dry_run, needs_approval=bound.approval)
        _say_batch(told, bound.which, json)
        return
    # Who says how many has said yes; and what needs a second operator is refused, whatever the first one answers.
    if limit is None and bound.approval is None:
        confirm(f"replay {counted(bound.number, 'failed task')} ({worded(bound.which)})?", yes)
    with progress("replayed", bound.number) as moved:
        done = operate(url, app, lambda own: own.failures.replay(bound, reason, moved), by=by)
    _say_batch(done, bound.which, json)


def _say_batch(done: failed.Replayed, which: FailureFilter, json: bool) -> None:
    if json:
        output.emit(done)
    elif done.dry_run:
        output.say(f"{counted(done.matched)} would be replayed ({worded(which)})")
        say_approval(done.needs_approval)
    elif not done.matched:
        output.say(f"nothing to replay ({worded(which)})")
    else:
        skipped = f", {done.skipped} skipped" if done.skipped else ""
        output.say(f"{counted(done.retried)} replayed{skipped} ({worded(which)})")


def _one_way(ids: Sequence[str] | None, which: FailureFilter, everything: bool | None, plan: str | None) -> str:
    """``everything`` None: there is no such way."""
    ways = {"ids": bool(ids), "filter": which != FailureFilter(), "all": everything, "plan": plan is not None}
    chosen = [name for name, used in ways.items() if used]
    if len(chosen) != 1:
        last = ", --plan TOKEN, or --all" if everything is not None else ", or --plan TOKEN; redrive flush is for all"
        raise typer.BadParameter(f"say which tasks, in one way: ids, filters like --kind{last}")
    return chosen[0]


def _refuse_pace(given: bool) -> None:
    if given:
        raise typer.BadParameter("tasks named by id are dealt with at once: --rate, --canary, --wait are for filters")


def _by_id(ids: Sequence[str], verb: str, possible: tuple[State, ...], ask: Ask) -> None:
    wanted = [inspect.parse_id(value) for value in dict.fromkeys(ids)]
    if ask.dry_run:
        _foretell(wanted, verb, possible, ask)
        return

    async def act(own: Operator) -> actions.Result:
        do = own.failures.retry if verb == "retried" else own.failures.forget
        return await do(wanted, ask.reason)

    report(operate(ask.url, ask.app, act, by=ask.by), verb, ask.json)


def _foretell(wanted: Sequence[UUID], verb: str, possible: tuple[State, ...], ask: Ask) -> None:
    told = operate(ask.url, ask.app, lambda own: own.failures.foretell(wanted, possible), by=ask.by)
    if ask.json:
        skipped = {str(task_id): why for task_id, why in told.skipped.items()}
        output.emit({"would": told.would_retry, "skipped": skipped, "dry_run": True,
                     "needs_approval": told.needs_approval})  # fmt: skip
        return
    output.say(*(f"{task_id}  would be {verb}" for task_id in told.would_retry))
    output.say(*(f"{task_id}  would be left alone: {why}" for task_id, why in told.skipped.items()))
    say_approval(told.needs_approval)
