"""``redrive work``: a worker, or several under a supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from contextlib import nullcontext, suppress
from functools import partial
from typing import Annotated, Any

import typer

from redrive.app import Served
from redrive.cli.support import output
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.metrics_port import Port, chosen_port, report_to_supervisor
from redrive.cli.support.options import AppName, Create, Json, Url
from redrive.cli.support.session import insist_on_name, refuse_both, refuse_memory
from redrive.cli.support.signals import stopping
from redrive.cli.support.worker_options import WorkerStart, as_arguments, start_of, with_worker_options
from redrive.cli.support.worker_process import (
    ending,
    leave_unknown_kinds,
    run_worker,
    say_connection,
    warn_of_unknown_queues,
    warn_of_unknown_settings,
)
from redrive.errors import InvalidInput, RedriveError, StoreUnavailable
from redrive.kernel.ports.liveness import Gone, Process
from redrive.kernel.task import check_text
from redrive.observe.feature_metrics import table_of
from redrive.observe.logs import choose_style, configure
from redrive.worker.config import worker_id as make_worker_id
from redrive.worker.hand_over import HandOver
from redrive.worker.liveness import session_ends
from redrive.worker.recycling import supervised, without_limits
from redrive.worker.supervisor import SUPERVISED_VARIABLE, Supervisor

logger = logging.getLogger("redrive.cli")
# As long as a supervisor waits for the end of a crashed child, before it starts the process again. Without it, others
# notice after a while.
BURIAL_PATIENCE_S = 3.0

Serves = Annotated[
    str | None, typer.Argument(metavar="CONNECTION", help="The connection to serve (else QUEUE_CONNECTION).")
]
Connection = Annotated[str | None, typer.Option("--connection", metavar="NAME", help="The same, as an option.")]
Group = Annotated[
    str | None,
    typer.Option(
        "--group", metavar="NAME", help="The options of [workers.NAME] in redrive.toml; those given here win."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        max=512,
        help="Worker processes, restarted when they crash; from 2 on, one that --max-time, --max-jobs or --max-memory "
        "ends is replaced first.",
    ),
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
    serves: Serves = None,
    connection: Connection = None,
    group: Group = None,
    processes: Processes = None,
    worker_id: WorkerId = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    fleet_metrics: FleetMetrics = False,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
    json: Json = False,
) -> None:
    """Run tasks until stopped. SIGTERM or Ctrl-C finishes what runs; a second one exits at once."""
    if serves and connection and serves != connection:
        raise InvalidInput(f"a worker serves one connection, not {serves} and {connection}")
    serve(
        load(url, app, warns=False),
        given,
        connection=connection or serves,
        group=group,
        processes=processes,
        worker_id=worker_id,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        fleet_metrics=fleet_metrics,
        url=url,
        create=create,
        json=json,
    )


def serve(
    loaded: Loaded,
    given: dict[str, Any],
    *,
    connection: str | None = None,
    group: str | None = None,
    processes: int | None = None,
    worker_id: str | None = None,
    metrics_port: int | None = None,
    metrics_host: str | None = None,
    fleet_metrics: bool = False,
    url: str | None = None,
    create: bool = False,
    json: bool = False,
) -> None:
    """Runs workers of an application until they end, and ends the command with their code. ``given``: options of a
    worker."""
    supervised = os.environ.pop(SUPERVISED_VARIABLE, None)
    refuse_both(loaded.app, url, connection)
    job = start_of(loaded.app, given, connection, group, processes)
    refuse_memory(loaded, job.connection)
    if supervised is None:
        insist_on_name(loaded, loaded.app.at(job.connection).url, create)
    for check in loaded.app.registry.before_work:  # also in a supervisor, which has no worker of its own
        check(job.options.queues)
    if worker_id is not None:
        loaded.app.settings = loaded.app.settings.with_values(worker_id=check_text(worker_id, "worker id"))
    configure(choose_style(loaded.app.settings.log_format), level=loaded.app.settings.log_level)
    if supervised is None:  # else the supervisor has said it
        warn_of_unknown_settings(loaded.app)
        say_connection(loaded.app, job.connection)
    port = _port(loaded, metrics_port, metrics_host, fleet_metrics, supervised is not None)
    if job.processes > 1:
        code, summary = asyncio.run(_supervise(loaded, job, url, port))
    else:
        pipe = None if supervised is None else int(supervised)
        code, summary = asyncio.run(_work(loaded, job, port, pipe))
    if json:
        output.emit(summary)
    raise typer.Exit(code)


def _port(loaded: Loaded, given: int | None, host: str | None, fleet: bool, supervised: bool) -> Port | None:
    """Returns the port to open; a child of a supervisor has none of its own."""
    settings = loaded.app.settings
    number = None if supervised else chosen_port(settings, given)
    if number is not None:
        return Port(settings, number, host, fleet=fleet)
    if fleet or host is not None:
        raise InvalidInput("--fleet-metrics and --metrics-host are for a port of its own", hint="add --metrics-port N")
    return None


async def _work(loaded: Loaded, job: WorkerStart, port: Port | None, pipe: int | None) -> tuple[int, dict[str, Any]]:
    """Runs one worker. ``pipe``: where its supervisor hears how it is; then it goes on until it is relieved."""
    app, served = loaded.app, loaded.app.at(job.connection)
    options = job.options if pipe is None else without_limits(job.options)
    try:
        if loaded.module is None:
            await leave_unknown_kinds(loaded, options.queues, served.name)
        if pipe is None:
            with suppress(StoreUnavailable):  # the worker waits for its store
                await warn_of_unknown_queues(app, options.queues, served.name)
        worker = app.worker(served.bound(), options, on=served.name)
        serving = nullcontext() if port is None else port.of_worker(app, worker, served)
        supervision = nullcontext() if pipe is None else supervised(worker.state, job.options, pipe)
        drain = None if pipe is None else worker.drain
        with stopping(ending(worker), drain=drain), serving, report_to_supervisor(app, worker):
            async with supervision:
                await run_worker(worker)
        summary = {name: value for name, value in worker.health.as_dict().items() if name != "extra"}
        return 0, summary | {"running": len(worker.runs)}
    finally:
        await app.close()


async def _supervise(
    loaded: Loaded, job: WorkerStart, url: str | None, port: Port | None
) -> tuple[int, dict[str, Any]]:
    app, served, processes = loaded.app, loaded.app.at(job.connection), job.processes
    with suppress(StoreUnavailable):  # children wait for their store; a wrong schema is better said once, here
        await leave_unknown_kinds(loaded, job.options.queues, served.name)
        await warn_of_unknown_queues(app, job.options.queues, served.name)
    await app.close()
    if url:
        os.environ["REDRIVE_URL"] = url
    name = make_worker_id(app.settings)
    names = [f"{name}-{number}" for number in range(1, processes + 1)]
    hand_over = HandOver(name, processes, table_of(app.features)) if port else None
    supervisor = Supervisor(names, partial(_command, loaded, job), hand_over, partial(_bury, served))
    serving = nullcontext() if port is None or hand_over is None else port.of_supervisor(app, hand_over, served)

    def stop(why: str) -> None:
        text = "%s: asking %d worker processes to stop; a second signal exits at once"
        logger.info(text, why, processes, extra={"event": "supervisor.stopping"})  # each says what it still runs
        supervisor.stop()

    with stopping(stop, force=lambda: supervisor.signal(signal.SIGTERM)), serving:
        logger.info("starting %d worker processes", processes, extra={"event": "supervisor.started"})
        codes = await supervisor.run()
    await app.close()
    logger.info("all worker processes ended", extra={"event": "supervisor.stopped"})
    summary = {"processes": processes, "exit_codes": codes, "restarts": supervisor.restarts}
    return max(codes), summary | {"relieved": supervisor.relieved}


def _command(loaded: Loaded, job: WorkerStart, name: str) -> list[str]:
    """The command line of one child: this one's options, spelled out. Its URL is in the environment, since every user
    of the machine can read a command line and the URL may have a password."""
    command = [sys.executable, "-m", "redrive.cli", "work", *as_arguments(job.options), "--id", name]
    command += ["--connection", job.connection] if job.connection else []
    return command + (["--app", loaded.spec] if loaded.spec else [])


async def _bury(served: Served, name: str, pid: int) -> None:
    """Ends the leases of a child that crashed, when nothing of what its handlers had started is left: whoever started
    it has seen it end, and others recover its tasks at once."""
    try:
        async with asyncio.timeout(BURIAL_PATIENCE_S):
            if not await session_ends(pid, BURIAL_PATIENCE_S):
                return
            ended = await served.bound().end_leases(Gone(name, Process(socket.gethostname(), pid)))
    except (RedriveError, TimeoutError):
        return
    tasks = ended[name].tasks if name in ended else 0
    if tasks:
        said = {"event": "worker.buried", "worker_id": name, "tasks": tasks}
        logging.getLogger("redrive.supervisor").info("%d tasks of %s go back", tasks, name, extra=said)
