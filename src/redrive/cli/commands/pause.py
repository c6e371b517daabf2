"""``redrive pause`` and ``redrive resume``."""

from __future__ import annotations

from collections.abc import Sequence
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

MaybeIds = Annotated[
    list[str] | None, typer.Argument(metavar="ID", help="Single tasks, one or more.", show_default=False)
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="NAME", help="A whole queue.")]
Kind = Annotated[str | None, typer.Option("--kind", metavar="NAME", help="All tasks of a kind.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="All tasks of a group.")]
Schedule = Annotated[str | None, typer.Option("--schedule", metavar="NAME", help="The planned runs of a schedule.")]
Force = Annotated[bool, typer.Option("--force", help="Also a queue or kind that nobody has used yet.")]


def pause(
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
    """Stop claiming tasks of a queue, kind or group, or single waiting tasks; or leave out the runs of a schedule. What
    runs goes on.

    Where there are several connections it happens where the queue, kind or group is, by routes and tasks; one that is
    on several needs --connection NAME, or --connection all.
    """
    targets = {"queue": queue, "kind": kind, "group": group, "schedule": schedule}
    _hold(True, ids or [], targets, reason, by, force, url, app, json)


def resume(
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
    """Let a paused queue, kind, group, schedule or task run again.

    Where there are several connections it happens where the queue, kind or group is, by routes and tasks; one that is
    on several needs --connection NAME, or --connection all.
    """
    targets = {"queue": queue, "kind": kind, "group": group, "schedule": schedule}
    _hold(False, ids or [], targets, reason, by, force, url, app, json)


def _hold(
    on: bool,
    ids: Sequence[str],
    targets: dict[str, str | None],
    reason: str | None,
    by: str | None,
    force: bool,
    url: str | None,
    app: str | None,
    json: bool,
) -> None:
    named = [(target, name) for target, name in targets.items() if name is not None]
    if len(named) + bool(ids) != 1:
        raise typer.BadParameter("say what: --queue, --kind, --group or --schedule NAME, or task ids; one of them")
    if ids:
        turn = "pause" if on else "resume"

        async def act(own: Operator) -> Result:
            change = own.tasks.pause if on else own.tasks.resume
            return await change(await own.tasks.meant(ids), reason)

        report(operate(url, app, act, by=by, ids=ids), f"{turn}d", json, store_named(url, app))
        return
    [(target, name)] = named

    async def turn_all(own: Operator) -> tuple[bool, bool, str | None]:
        changed = await _change(own, on, target, name, reason, force)
        has_tasks = target == "schedule" or await own.control.has_tasks(target, name)
        return changed, has_tasks, own.told_connection

    def turn_here() -> None:
        has = having(name, lambda own: own.schedules.show(name)) if target == "schedule" else None
        changed, has_tasks, connection = operate(url, app, turn_all, by=by, has=has)
        where = {} if connection is None else {"connection": connection}
        if json:
            output.emit({"target": target, "name": name, "paused": on, "changed": changed, **where})
            return
        done, already = ("paused", "was already paused") if on else ("resumed", "was not paused")
        none = "" if has_tasks else "; it has no tasks so far"
        at = f" on {connection}" if connection else ""
        output.say(f"{target} {name} {done if changed else already}{at}{none}")

    turn_here() if target == "schedule" else on_holders(url, app, target, name, turn_here)


async def _change(own: Operator, on: bool, target: str, name: str, reason: str | None, force: bool) -> bool:
    if target == "schedule":
        turn = own.schedules.pause if on else own.schedules.resume
        return (await turn(name, reason)).changed
    change = own.control.pause if on else own.control.resume
    return await change(target, name, reason, force=force)
