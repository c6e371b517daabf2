"""``redrive schedules``: periodic tasks; ``redrive schedules run NAME``: one of them now."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.added_options import list_command
from redrive.cli.support.looked import look_at
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.session import operate
from redrive.ops.connections import having
from redrive.ops.operator import Operator
from redrive.ops.operator.schedules import Schedule

schedules_cli = typer.Typer(help="Periodic tasks: list them, run one now.", invoke_without_command=True)


@schedules_cli.callback()
def list_schedules(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Periodic tasks with their next and last runs. To pause one: redrive pause --schedule NAME."""
    if context.invoked_subcommand is not None:
        return

    async def look(own: Operator) -> tuple[list[Schedule], Any]:
        return await own.schedules.list(), await own.health.now()

    looked = look_at(url, app, look)
    found = looked.rows(lambda answer: answer[0])
    if json:
        items = [
            looked.document(name, asdict(one.row) | {"paused": one.paused and asdict(one.paused)})
            for name, one in found
        ]
        output.emit_list(items, **looked.missing)
        return
    if not found:
        output.say(f"no application has declared a schedule{looked.without}")
        return
    output.table(
        ["name", *looked.column, "kind", "queue", "cron", "zone", "next", "last"],
        [
            (
                *(row.name, *looked.cell(name), row.kind, row.queue, row.cron, row.timezone),
                output.planned(row.next_at, now, one.paused),
                output.ago(row.last_at, now) or "-",
            )
            for name, one in found
            for row, now in ((one.row, looked.found[name][1]),)
        ],
    )


list_command(schedules_cli, list_schedules)


@schedules_cli.command("run")
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule.", show_default=False)],
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Enqueue one task of a schedule now, beside its plan: the planned runs stay as they are."""
    has = having(name, lambda own: own.schedules.show(name))
    task = operate(url, app, lambda own: own.schedules.run_now(name, reason), by=by, has=has)
    if json:
        output.emit({"schedule": name, "id": task.id, "kind": task.kind, "queue": task.queue})
        return
    output.say(f"schedule {name} runs now: {task.id} ({task.kind} in queue {task.queue})")
