"""``redrive why``: why a task does not run."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.commands.show import story_of, why_documents
from redrive.cli.support import output
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import operate
from redrive.kernel.task import State, Task
from redrive.ops.operator import Operator
from redrive.ops.operator.tasks import Story
from redrive.ops.views import Sight


def why(
    task: Annotated[str, typer.Argument(metavar="ID", help="The task's id, or its beginning.")],
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Why a task does not run, the strongest reason first, and what to do about it; redrive show tells the rest."""

    async def look(own: Operator) -> tuple[Story, Sight]:
        return await story_of(own, task), own.sight

    story, sight = operate(url, app, look, ids=[task])
    found = story.timeline.task
    if json:
        output.emit({"id": found.id, "state": found.state, "why": why_documents(story, sight)})
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
