"""``redrive replay``: what matches is retried here and now, up to a limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import on_chosen
from redrive.cli.support.filters import Forgotten, filtered, matches_text
from redrive.cli.support.follow import say_outcomes
from redrive.cli.support.options import AppName, By, DryRun, Json, Reason, Url, Yes, confirm
from redrive.cli.support.progress import progress
from redrive.cli.support.session import operate
from redrive.cli.support.start_operation import say_approval
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.wording import counted
from redrive.ops.operations.retry import RetryResult
from redrive.ops.operations.selection import Selection
from redrive.ops.operator import Operator

DEFAULT_LIMIT = 100


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
            help=f"At most so many ({DEFAULT_LIMIT}). Who says how many is not asked again.",
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
    meant, foreseen = operate(url, app, lambda own: _look(own, which, limit or DEFAULT_LIMIT), by=by)
    if dry_run or not meant.number:
        foreseen.dry_run = dry_run
        _say_replayed(foreseen, meant.which, json)
        return
    # Who says how many has said yes; and what needs a second operator is refused, whatever the first one answers.
    if limit is None and foreseen.needs_approval is None:
        confirm(f"replay {counted(meant.number)} ({matches_text(meant.which, meant.cancelled)})?", yes)
    with progress("replayed", meant.number) as moved:
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
