"""``redrive work``: a worker, or several under a supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import nullcontext, suppress
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.burials import Burials
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.metrics_port import Port, chosen_port, group_name, told_to_supervisor
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import refuse_memory
from redrive.cli.support.signals import stopping
from redrive.cli.support.worker_options import as_arguments, make_options, with_worker_options
from redrive.cli.support.worker_process import (
    ending,
    leave_unknown_kinds,
    run_worker,
    update_settings,
    warn_of_unknown_queues,
    warn_of_unknown_settings,
)
from redrive.errors import InvalidInput, StoreUnavailable
from redrive.kernel.task import check_text
from redrive.observe.feature_metrics import table_of
from redrive.observe.logs import choose_style, configure
from redrive.settings import Options
from redrive.worker.config import worker_id as make_worker_id
from redrive.worker.hand_over import HandOver
from redrive.worker.supervisor import SUPERVISED_VARIABLE, Supervisor

logger = logging.getLogger("redrive.cli")


Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=1, max=512, help="Worker processes, restarted when they crash.")
]
WorkerId = Annotated[
    str | None,
    typer.Option("--id", metavar="NAME", help="The worker's name (else TASK_WORKER_ID, else generated)."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="N",
        min=0,
        max=65535,
        help="Serve /healthz, /readyz and /metrics there (else REDRIVE_METRICS_PORT); 0 takes any free one.",
    ),
]
MetricsHost = Annotated[
    str | None,
    typer.Option("--metrics-host", metavar="ADDRESS", help="Else REDRIVE_METRICS_HOST, else 127.0.0.1."),
]
FleetMetrics = Annotated[
    bool, typer.Option("--fleet-metrics", help="Serve the figures of the whole fleet there, as redrive up does.")
]


@with_worker_options()
def work(
    given: dict[str, Any],
    processes: Processes = 1,
    worker_id: WorkerId = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    fleet_metrics: FleetMetrics = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Run tasks until stopped. SIGTERM or Ctrl-C finishes what runs; a second one exits at once."""
    loaded = load(url, app, warns=False)
    refuse_memory(loaded)
    options = make_options(loaded.app, given)
    if worker_id is not None:
        update_settings(loaded.app, worker_id=check_text(worker_id, "worker id"))
    configure(choose_style(loaded.app.settings.log_format), level=loaded.app.settings.log_level)
    if SUPERVISED_VARIABLE not in os.environ:  # else the supervisor has said it
        warn_of_unknown_settings(loaded.app)
    port = _port(loaded, metrics_port, metrics_host, fleet_metrics)
    if processes > 1:
        code, summary = asyncio.run(_supervise(loaded, options, processes, url, port))
    else:
        code, summary = asyncio.run(_work(loaded, options, port))
    if json:
        output.emit(summary)
    raise typer.Exit(code)


def _port(loaded: Loaded, given: int | None, host: str | None, fleet: bool) -> Port | None:
    """Returns the port to open; a child of a supervisor has none of its own."""
    settings = loaded.app.settings
    number = None if SUPERVISED_VARIABLE in os.environ else chosen_port(settings, given)
    if number is not None:
        return Port(settings, number, host, fleet=fleet)
    if fleet or host is not None:
        raise InvalidInput("--fleet-metrics and --metrics-host are for a port of its own", hint="add --metrics-port N")
    return None


async def _work(loaded: Loaded, options: Options, port: Port | None) -> tuple[int, dict[str, Any]]:
    app = loaded.app
    store = app.bound_store()
    try:
        if loaded.module is None:
            await leave_unknown_kinds(loaded, options.queues)
        if SUPERVISED_VARIABLE not in os.environ:
            with suppress(StoreUnavailable):  # the worker waits for its store
                await warn_of_unknown_queues(app, options.queues)
        worker = app.worker(store, options)
        serving = nullcontext() if port is None else port.of_worker(app, worker)
        with stopping(ending(worker)), serving, told_to_supervisor(app, worker):
            await run_worker(worker)
        summary = {name: value for name, value in worker.health.as_dict().items() if name != "extra"}
        return 0, summary | {"running": len(worker.runs)}
    finally:
        await app.close()


async def _supervise(
    loaded: Loaded, options: Options, processes: int, url: str | None, port: Port | None
) -> tuple[int, dict[str, Any]]:
    app = loaded.app
    with suppress(StoreUnavailable):  # children wait for their store; a wrong schema is better said once, here
        await leave_unknown_kinds(loaded, options.queues)
        await warn_of_unknown_queues(app, options.queues)
    await app.close()
    if url:
        os.environ["REDRIVE_URL"] = url
    name = make_worker_id(app.settings)
    names = [f"{name}-{number}" for number in range(1, processes + 1)]
    hand_over = HandOver(group_name(app.settings), processes, table_of(app.features)) if port else None
    commands = [_command(loaded, options, name) for name in names]
    supervisor = Supervisor(commands, hand_over, Burials(app, names).bury)
    serving = nullcontext() if port is None or hand_over is None else port.of_supervisor(app, hand_over)

    def stop(why: str) -> None:
        text = "%s: asking %d worker processes to stop; a second signal exits at once"
        logger.info(text, why, processes, extra={"event": "supervisor.stopping"})  # each says what it still runs
        supervisor.stop()

    with stopping(stop, force=lambda: supervisor.signal(signal.SIGTERM)), serving:
        logger.info("starting %d worker processes", processes, extra={"event": "supervisor.started"})
        codes = await supervisor.run()
    await app.close()
    logger.info("all worker processes ended", extra={"event": "supervisor.stopped"})
    return max(codes), {"processes": processes, "exit_codes": codes, "restarts": supervisor.restarts}


def _command(loaded: Loaded, options: Options, name: str) -> list[str]:
    """The command line of one child: this one's options, spelled out. Its URL is in the environment, since every user
    of the machine can read a command line and the URL may have a password."""
    command = [sys.executable, "-m", "redrive.cli", "work", *as_arguments(options), "--id", name]
    return command + (["--app", loaded.spec] if loaded.spec else [])
