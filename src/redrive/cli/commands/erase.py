"""``redrive erase``: remove what is known about a scope or a task."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import on_chosen
from redrive.cli.support.follow import follow, say_started
from redrive.cli.support.options import AppName, By, DryRun, Json, Reason, Url, Yes, confirm
from redrive.cli.support.session import operate
from redrive.cli.support.start_operation import Wait
from redrive.ops import inspect
from redrive.ops.operations import erase as service
from redrive.ops.operator.erasures import ErasurePreview

PLACES = {
    "running": "tasks that run now",
    "live": "tasks that wait or are failed (they are given up)",
    "finished": "finished tasks",
    "attempts": "failed attempts",
    "dead_letters": "dead letters",
    "audit": "rows of the audit log",
    "documents": "plans, operations, approvals and notes that quote it",
    "archive": "archived rows of the audit log",
}


def erase(
    scope: Annotated[str | None, typer.Option("--scope", metavar="TEXT", help="All that this scope names.")] = None,
    task: Annotated[str | None, typer.Option("--task", metavar="ID", help="One task.")] = None,
    reason: Reason = None,
    dry_run: DryRun = False,
    wait: Wait = False,
    yes: Yes = False,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Remove personal data of a scope or a task for good: payloads, results, messages, stacks, keys, labels, and what
    the audit log and its archive say about it. Ids, kinds, states, times and totals stay. A second operator has to
    agree; backups, logs, exports and the ledger (names of accounts, postings) are not covered. Where there are several
    connections a scope may be on each of them: --connection all, or --connection NAME for one."""
    if (scope is None) == (task is None):
        raise typer.BadParameter("say whose data: --scope TEXT, or --task ID")
    task_id = None if task is None else inspect.parse_id(task)
    ids = [] if task is None else [task]

    def act() -> None:
        seen = operate(url, app, lambda own: own.erasures.preview(scope, task_id), by=by, ids=ids)
        if dry_run or not seen.places:
            _say_preview(seen, dry_run, json)
            return
        if not json:
            output.say(*_lines(seen))
        confirm("erase all of this for good?", yes)
        begun = operate(url, app, lambda own: own.erasures.begin(scope, task_id, reason=reason), by=by, ids=ids)
        if not (wait and json):  # stdout is one document
            say_started(begun.operation, begun.approval, json, "erase")
        if wait:
            follow(begun.operation.id, url, app, json)

    act() if ids else on_chosen(url, app, act, looks=dry_run)


def _say_preview(seen: ErasurePreview, dry_run: bool, json: bool) -> None:
    if json:
        output.emit({**asdict(seen), "dry_run": dry_run, "not_covered": service.NOT_COVERED})
    elif not seen.places:
        output.say("nothing is known about it", service.NOT_COVERED)
    else:
        output.say(*_lines(seen), "nothing was done")
        if seen.approval is not None:
            output.say(f"a second operator has to agree, because {seen.approval}")


def _lines(seen: ErasurePreview) -> list[str]:
    width = max(len(f"{n:,}") for n in seen.places.values())
    counts = [f"{n:>{width},}  {PLACES.get(place, place.replace('_', ' '))}" for place, n in seen.places.items()]
    return [*counts, service.NOT_COVERED]
