"""``redrive cancel``, and how actions on tasks are reported."""

from __future__ import annotations

from uuid import UUID

import typer

from redrive.cli.support import output
from redrive.cli.support.options import AppName, By, Ids, Json, Reason, Url
from redrive.cli.support.session import operate
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
        notes = {str(task_id): text for task_id, text in result.notes.items()}
        output.emit({"done": result.done, "requested": result.requested, "skipped": skipped, "notes": notes})
    else:
        output.say(*(f"{task_id}  {verb}" for task_id in result.done))
        told = {task_id: result.notes.get(task_id, "asked to stop") for task_id in result.requested}
        output.say(*(f"{task_id}  running; {what}" for task_id, what in told.items()))
    for task_id, why in result.skipped.items():
        output.report(_refusal(task_id, verb, why), json)
    if result.skipped:
        raise typer.Exit(1)


def _refusal(task_id: UUID, verb: str, why: str) -> RedriveError:
    if why == "not found":
        return TaskNotFound(f"there is no task {task_id}", hint="it may be older than the history that is kept")
    hint = f"redrive show {task_id} tells what happened to it"
    return InvalidTransition(f"task {task_id} cannot be {verb}: {why}", hint=hint)
