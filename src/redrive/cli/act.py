"""``redrive cancel``, and how actions on tasks are reported."""

from __future__ import annotations

import typer

from redrive.cli import output
from redrive.cli.options import AppName, By, Ids, Json, Reason, Url
from redrive.cli.session import operate
from redrive.errors import InvalidTransition, RedriveError, TaskNotFound
from redrive.ops import actions, inspect


def cancel(
    ids: Ids, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Cancel waiting tasks now, and ask running ones to stop."""
    wanted = [inspect.parse_id(value) for value in ids]
    report(operate(url, app, lambda own: own.tasks.cancel(wanted, reason), by=by), "cancelled", json)


def report(result: actions.Result, verb: str, json: bool) -> None:
    """What was done and what was not; anything left undone makes the command fail."""
    if json:
        skipped = {str(task_id): why for task_id, why in result.skipped.items()}
        output.emit({"done": result.done, "requested": result.requested, "skipped": skipped})
    else:
        output.say(*(f"{task_id}  {verb}" for task_id in result.done))
        output.say(*(f"{task_id}  running; asked to stop" for task_id in result.requested))
    for task_id, why in result.skipped.items():
        output.report(_refusal(f"task {task_id}", verb, why), json)
    if result.skipped:
        raise typer.Exit(1)


def _refusal(what: str, verb: str, why: str) -> RedriveError:
    if why == "not found":
        return TaskNotFound(f"there is no {what}", hint="it may be older than the history that is kept")
    return InvalidTransition(f"{what} cannot be {verb}: {why}", hint="redrive show tells what happened to it")
