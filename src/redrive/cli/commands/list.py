"""``redrive list``."""

from __future__ import annotations

from typing import Annotated, NamedTuple
from uuid import UUID

import typer

from redrive.cli.support import output
from redrive.cli.support.connections import look_at
from redrive.cli.support.filters import labelled
from redrive.cli.support.options import AppName, Json, Url
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.reads import Overview, Query
from redrive.kernel.task import State, Task
from redrive.ops import filters, inspect
from redrive.ops.operator import Operator
from redrive.ops.views import View, task_row
from redrive.ops.why import lost_by, pauses_of

DEFAULT_LIMIT = 50


States = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="A,B", help=", ".join(State) + "."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many at most.")]
Before = Annotated[
    str | None, typer.Option("--before", metavar="ID", help="Continue a page: only tasks older than this one.")
]


@labelled
def list_tasks(
    which: FailureFilter,
    state: States = None,
    limit: Limit = DEFAULT_LIMIT,
    before: Before = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Tasks, newest first, each with the one thing worth knowing about it. Filters narrow it down together."""
    states = inspect.parse_states([name for given in state or [] for name in given.split(",")])
    after = None if before is None else inspect.parse_id(before)
    query = filters.query(which, states=states, limit=limit, before=after)

    async def look(own: Operator) -> Looked:
        page = await own.tasks.list(query)
        if not page.tasks:
            await own.failures.known(which)  # a name that nobody knows is a mistake, and no good news
        around = None if json else await own.tasks.surroundings(page.tasks)
        sight = own.sight
        return [Listed(task, around, sight.connection, task_row(task, sight)) for task in page.tasks], page.next_before

    looked = look_at(url, app, look)
    found, more = _merged(list(looked.found.values()), limit)
    if json:
        output.emit_list([one.document for one in found], more, **looked.missing)
        return
    if not found:
        output.say("no tasks match" if _filtered(query) else "no tasks yet")
        return
    columns = ["id", *looked.column, "state", "kind", "queue", "attempts", "age", "what"]
    output.table(columns, [_row(one) for one in found])
    if more is not None:
        output.say("", f"more: --before {more}")


class Listed(NamedTuple):
    """A task, what is around it, where it is if there are several places, and what is seen of it."""

    task: Task
    around: Overview | None
    connection: str | None
    document: View


Looked = tuple[list[Listed], UUID | None]


def _merged(pages: list[Looked], limit: int) -> Looked:
    """Returns one page of several: ids go by time, on all connections alike."""
    found = sorted((one for page, _ in pages for one in page), key=lambda one: one.task.id, reverse=True)
    more = len(found) > limit or any(rest is not None for _, rest in pages)
    return found[:limit], found[:limit][-1].task.id if found and more else None


def _row(one: Listed) -> list[object]:
    task, around = one.task, one.around
    attempts = f"{task.attempt_count}/{task.max_attempts}"
    return [
        task.id,
        *([] if one.connection is None else [one.connection]),
        output.state(task.state),
        task.kind,
        task.queue,
        attempts,
        output.ago(task.created_at),
        _what(task, around),
    ]


def _what(task: Task, around: Overview | None) -> str:
    """The one thing worth knowing about it."""
    if around is not None and (pauses := pauses_of(task, around)):
        more = f" (and {len(pauses) - 1} more)" if pauses[1:] else ""
        return f"held: {output.shorten(pauses[0], 60)}{more}"
    if task.error_code is not None and task.state.value != "running":  # an earlier attempt's; this one goes on
        due = f"again {output.relative(task.next_attempt_at)}: " if task.state.value == "delayed" else ""
        return f"{due}{task.error_code} {output.shorten(task.error_message or '', 60)}"
    if task.state.value == "delayed":
        return f"due {output.relative(task.next_attempt_at or task.run_at)}"
    if task.state.value == "running":
        asked = ", asked to stop" if task.cancel_requested_at else ""
        done = f", {output.progress(task.progress)}" if task.progress is not None else ""
        return f"on {task.worker_id}{_lost(task, around)}{done}{asked}"
    if task.state.value == "paused":
        return f"by {task.paused_by}" if task.paused_by else ""
    if task.state.value == "cancelled" and (task.forgotten or task.error_message):
        said = [*(["forgotten"] if task.forgotten else []), *([task.error_message] if task.error_message else [])]
        return output.shorten(": ".join(said), 60)
    return f"{task.execution_ms:.0f} ms" if task.execution_ms is not None else ""


def _lost(task: Task, around: Overview | None) -> str:
    """Whether nobody works on it, though it runs by its row."""
    lost = None if around is None else lost_by(task, around)
    return f" ({lost})" if lost else ""


def _filtered(query: Query) -> bool:
    return query != Query(limit=query.limit)
