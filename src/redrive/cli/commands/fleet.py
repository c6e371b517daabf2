"""``redrive queues``, ``kinds``, ``schedules``, ``circuits`` and ``workers``: what their services declare."""

from __future__ import annotations

from typing import Annotated

import typer

from redrive.cli.declared import command_of, group_of, run
from redrive.cli.support.connections import on_chosen
from redrive.cli.support.options import AppName, By, Json, Reason, Url
from redrive.errors import InvalidInput
from redrive.ops.operator.circuits import CircuitService
from redrive.ops.operator.control import ControlService
from redrive.ops.operator.declared import declared_by
from redrive.ops.operator.schedules import ScheduleService
from redrive.ops.operator.workers import WorkerService

queues = command_of(ControlService, "queues")
kinds = command_of(ControlService, "kinds")
circuits_cli = group_of(CircuitService)
schedules_cli = group_of(ScheduleService)
workers_cli = group_of(WorkerService, without=("drain", "drain_all"))


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
    declared = declared_by(WorkerService)
    if worker is not None and not everyone:
        run(WorkerService, declared["drain"], {"worker": worker, "reason": reason}, by, url, app, json)
    elif worker is None and everyone:
        on_chosen(url, app, lambda: run(WorkerService, declared["drain_all"], {"reason": reason}, by, url, app, json))
    else:
        raise InvalidInput("name a worker, or say --all", hint="redrive workers lists them")
