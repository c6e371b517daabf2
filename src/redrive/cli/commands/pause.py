"""``redrive pause`` and ``redrive resume``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from redrive.cli.support import output
from redrive.cli.support.by_id import report
from redrive.cli.support.connections import on_holders
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.session import operate, store_named
from redrive.ops.actions import Result
from redrive.ops.connections import having
from redrive.ops.operator import Operator
from redrive.ops.operator.control import PauseChange

MaybeIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Single tasks, one or more.", show_default=False)
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="A whole queue.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="NAME", help="All tasks of a kind.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="All tasks of a group.")]
Schedule = Annotated[str | None, typer.Option("--schedule", metavar="NAME", help="The planned runs of a schedule.")]
Force = Annotated[bool, typer.Option("--force", help="Also a queue or kind that nobody has used yet.")]


WHERE = """

Where there are several connections it happens where the queue, kind or group is, by routes and tasks; one that is on
several needs --connection NAME, or --connection all."""


def _command(verb: str, text: str) -> Callable[..., None]:
    def command(
        ids: MaybeIds = None,
        queue: Queue = None,
        kind: Kind = None,
        group: Group = None,
        schedule: Schedule = None,
        reason: Reason = None,
        by: By = None,
        force: Force = False,
        url: Url = None,
        app: AppName = None,
        json: Json = False,
    ) -> None:
        targets = {"queue": queue, "kind": kind, "group": group, "schedule": schedule}
        named = [(target, name) for target, name in targets.items() if name is not None]
        if len(named) + bool(ids) != 1:
            raise typer.BadParameter("say what: --queue, --kind, --group or --schedule NAME, or task ids; one of them")
        if ids:

            async def act(own: Operator) -> Result:
                result: Result = await getattr(own.tasks, verb)(await own.tasks.meant(ids), reason)
                return result

            report(operate(url, app, act, by=by, ids=ids), f"{verb}d", json, store_named(url, app))
            return
        [(target, name)] = named

        async def turn_all(own: Operator) -> tuple[PauseChange, bool, str | None]:
            if target == "schedule":
                return await getattr(own.schedules, verb)(name, reason), True, own.connection_label
            change = await getattr(own.control, verb)(target, name, reason, force)
            return change, await own.control.has_tasks(target, name), own.connection_label

        def turn_here() -> None:
            has = having(name, lambda own: own.schedules.show(name)) if target == "schedule" else None
            _say(*operate(url, app, turn_all, by=by, has=has), json)

        turn_here() if target == "schedule" else on_holders(url, app, target, name, turn_here)

    command.__doc__ = text
    return command


def _say(change: PauseChange, has_tasks: bool, connection: str | None, json: bool) -> None:
    if json:
        output.emit(asdict(change) | ({} if connection is None else {"connection": connection}))
        return
    done, already = ("paused", "was already paused") if change.paused else ("resumed", "was not paused")
    none = "" if has_tasks else "; it has no tasks so far"
    at = f" on {connection}" if connection else ""
    output.say(f"{change.target} {change.name} {done if change.changed else already}{at}{none}")


pause = _command(
    "pause",
    "Stop claiming tasks of a queue, kind or group, or single waiting tasks; or leave out the runs of a schedule. What"
    f" runs goes on.{WHERE}",
)
resume = _command("resume", f"Let a paused queue, kind, group, schedule or task run again.{WHERE}")
