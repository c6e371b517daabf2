"""``redrive work``: a worker, or several under a supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from redrive.cli.support import output
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.session import refuse_memory
from redrive.cli.support.signals import stopping
from redrive.cli.support.worker_process import (
    ending,
    leave_unknown_kinds,
    make_options,
    run_worker,
    update_settings,
    warn_of_unknown_queues,
    warn_of_unknown_settings,
)
from redrive.errors import StoreUnavailable
from redrive.kernel.task import check_text
from redrive.observe.logs import choose_style, configure
from redrive.settings import Options
from redrive.worker.supervisor import SUPERVISED_VARIABLE, Supervisor

logger = logging.getLogger("redrive.cli")


Queues = Annotated[
    list[str] | None,
    typer.Option("--queue", metavar="A,B", help="Queues, the first drained first; else all of the app's."),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", metavar="N", min=1, max=10_000, help="Tasks at once (else TASK_WORKER_CONCURRENCY, else 1)."
    ),
]
Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=1, max=512, help="Worker processes, restarted when they crash.")
]
Sleep = Annotated[
    float | None,
    typer.Option("--sleep", metavar="SECONDS", help="Look again after so long (else TASK_WORKER_INTERVAL_MS)."),
]
Tries = Annotated[
    int | None,
    typer.Option("--tries", metavar="N", min=1, help="Fail tasks after so many attempts, if they allow more."),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="For kinds without a timeout of their own; 0 is none."),
]
MaxTime = Annotated[float | None, typer.Option("--max-time", metavar="SECONDS", help="Stop after so long.")]
MaxJobs = Annotated[int | None, typer.Option("--max-jobs", metavar="N", min=1, help="Stop after so many tasks.")]
Once = Annotated[bool, typer.Option("--once", help="Run at most one task.")]
WhenEmpty = Annotated[bool, typer.Option("--stop-when-empty", help="Stop when nothing can run now.")]
WorkerId = Annotated[
    str | None,
    typer.Option("--id", metavar="NAME", help="The worker's name (else TASK_WORKER_ID, else generated)."),
]


def work(
    queue: Queues = None,
    concurrency: Concurrency = None,
    processes: Processes = 1,
    sleep: Sleep = None,
    tries: Tries = None,
    timeout: Timeout = None,
    max_time: MaxTime = None,
    max_jobs: MaxJobs = None,
    once: Once = False,
    stop_when_empty: WhenEmpty = False,
    worker_id: WorkerId = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Run tasks until stopped. SIGTERM or Ctrl-C finishes what runs; a second one exits at once."""
    loaded = load(url, app)
    refuse_memory(loaded)
    given = {
        "concurrency": concurrency,
        "sleep": sleep,
        "tries": tries,
        "timeout": timeout,
        "max_time": max_time,
        "max_jobs": max_jobs,
        "once": once,
        "stop_when_empty": stop_when_empty,
    }
    options = make_options(loaded.app, queue or [], given)
    if worker_id is not None:
        update_settings(loaded.app, worker_id=check_text(worker_id, "worker id"))
    configure(choose_style(loaded.app.settings.log_format))
    if SUPERVISED_VARIABLE not in os.environ:  # else the supervisor has said it
        warn_of_unknown_settings(loaded.app)
    if processes > 1:
        code, summary = asyncio.run(_supervise(loaded, options, processes, url))
    else:
        code, summary = asyncio.run(_work(loaded, options))
    if json:
        output.emit(summary)
    raise typer.Exit(code)


async def _work(loaded: Loaded, options: Options) -> tuple[int, dict[str, Any]]:
    app = loaded.app
    store = app.bound_store()
    try:
        if loaded.module is None:
            await leave_unknown_kinds(loaded, options.queues)
        if SUPERVISED_VARIABLE not in os.environ:
            with suppress(StoreUnavailable):  # the worker waits for its store
                await warn_of_unknown_queues(app, options.queues)
        worker = app.worker(store, options)
        with stopping(ending(worker)):
            await run_worker(worker)
        summary = {name: value for name, value in worker.health.as_dict().items() if name != "extra"}
        return 0, summary | {"running": len(worker.runs)}
    finally:
        await app.close()


async def _supervise(loaded: Loaded, options: Options, processes: int, url: str | None) -> tuple[int, dict[str, Any]]:
    app = loaded.app
    with suppress(StoreUnavailable):  # children wait for their store; a wrong schema is better said once, here
        await leave_unknown_kinds(loaded, options.queues)
        await warn_of_unknown_queues(app, options.queues)
    await app.close()
    if url:
        os.environ["REDRIVE_URL"] = url
    supervisor = Supervisor([_command(loaded, options, number) for number in range(1, processes + 1)])

    def stop(why: str) -> None:
        text = "%s: asking %d worker processes to stop; a second signal exits at once"
        logger.info(text, why, processes, extra={"event": "supervisor.stopping"})  # each says what it still runs
        supervisor.stop()

    with stopping(stop, force=lambda: supervisor.signal(signal.SIGTERM)):
        logger.info("starting %d worker processes", processes, extra={"event": "supervisor.started"})
        codes = await supervisor.run()
    logger.info("all worker processes ended", extra={"event": "supervisor.stopped"})
    return max(codes), {"processes": processes, "exit_codes": codes, "restarts": supervisor.restarts}


def _command(loaded: Loaded, options: Options, number: int) -> list[str]:
    """The command line of one child: this one's options, spelled out. Its URL is in the environment, since every user
    of the machine can read a command line and the URL may have a password."""
    command = [sys.executable, "-m", "redrive.cli", "work", "--queue", ",".join(options.queues)]
    for name in ("concurrency", "sleep", "tries", "timeout", "max_time", "max_jobs"):
        value = getattr(options, name)
        if value is not None:
            command += [f"--{name.replace('_', '-')}", str(value)]
    command += ["--once"] if options.once else []
    command += ["--stop-when-empty"] if options.stop_when_empty else []
    named = loaded.app.settings.worker_id
    command += ["--id", f"{named}-{number}"] if named else []
    return command + (["--app", loaded.spec] if loaded.spec else [])
