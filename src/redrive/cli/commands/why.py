"""``redrive why``: why a task does not run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.commands.show import story_of
from redrive.cli.support import output
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.kernel.task import State, Task


def why(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task's id, or its beginning.")],
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Why a task does not run, the strongest reason first, and what to do about it; redrive show tells the rest."""
    story = operate(url, app, lambda own: story_of(own, task), ids=[task])
    found = story.timeline.task
    if json:
        fixes = [{"fix": reason.fix and output.suggest(reason.fix)} for reason in story.why]
        told = [asdict(reason) | fix for reason, fix in zip(story.why, fixes, strict=True)]
        output.emit({"id": found.id, "state": found.state, "why": told})
        return
    output.say(f"{found.kind}  {found.state}  {found.id}")
    for reason in story.why:
        output.say(reason.full)
        if reason.fix:
            output.say(f"→ {output.suggest(reason.fix)}")
    if not story.why:
        output.say(_well(found))


def _well(task: Task) -> str:
    if task.state is State.RUNNING:
        return f"it runs on {task.worker_id}"
    return f"it is {task.state}, and waits for nothing"
