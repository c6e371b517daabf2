"""``redrive workers``: who is there; ``redrive workers drain``: have them end."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.added_options import list_command
from redrive.cli.support.looked import look_at
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.cli.support.session import operate
from redrive.cli.support.written import on_chosen
from redrive.errors import InvalidInput
from redrive.ops.operator import Operator
from redrive.ops.operator.control import Drained, Worker

workers_cli = typer.Typer(help="Workers: list them, have them end.", invoke_without_command=True)


@workers_cli.callback()
def list_workers(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Workers that were seen within the last day, what they serve and how they are."""
    if context.invoked_subcommand is not None:
        return

    async def look(own: Operator) -> tuple[list[Worker], Any]:
        return await own.control.workers(), await own.health.now()

    looked = look_at(url, app, look)
    found = looked.rows(lambda answer: answer[0])
    if json:
        items = [asdict(one.row) | {"standing": one.standing, "alive": one.alive} for _, one in found]
        named = [looked.document(name, row) for (name, _), row in zip(found, items, strict=True)]
        output.emit_list(named, **looked.missing)
        return
    if not found:
        output.say(f"no worker was seen within the last day{looked.without}")
        return
    output.table(
        ["worker", *looked.column, "state", "queues", "runs", "host", "pid", "seen", "version", "build"],
        [
            (
                *(
                    row.id,
                    *looked.cell(name),
                    _state(one),
                    ",".join(row.queues),
                    f"{row.running}/{row.concurrency}",
                    row.host,
                    str(row.pid),
                ),
                *(output.ago(row.seen_at, looked.found[name][1]) or "-", row.version, row.build or "-"),
            )
            for name, one in found
            for row in (one.row,)
        ],
    )


list_command(workers_cli, list_workers)


@workers_cli.command("drain")
def drain(
    worker: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The worker, as redrive workers names it.", show_default=False)
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="Every worker that is there.")] = False,
    reason: Reason = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Have a worker claim no more, finish what it runs, and end. It hears of it within seconds, wherever it runs; what
    restarts it (systemd, Kubernetes) starts a new one. Where there are several connections, --all needs --connection
    NAME or --connection all."""
    if (worker is None) != everyone:
        raise InvalidInput("name a worker, or say --all", hint="redrive workers lists them")

    def act() -> None:
        has = None if worker is None else partial(_seen, worker)
        _drained(operate(url, app, lambda own: own.control.drain(worker, reason), by=by, has=has), json)

    on_chosen(url, app, act) if everyone else act()


async def _seen(worker: str, own: Operator) -> list[str]:
    return [one.row.id for one in await own.control.workers() if one.row.id == worker]


def _drained(done: Drained, json: bool) -> None:
    if json:
        output.emit(asdict(done))
        return
    for name in done.asked:
        output.say(f"{name} is asked to end: it finishes what it runs")
    for name in done.already:
        output.say(f"{name} was asked before")
    if not done.asked and not done.already:
        output.say("no worker is there")


def _state(one: Worker) -> str:
    if one.row.drain_at is not None and one.alive:
        return "draining"
    stalled = f", loop stalled for {one.row.stalled:.0f} s" if one.row.stalled else ""
    return f"{one.standing.value}{stalled}"
