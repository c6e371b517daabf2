"""``redrive up``: migrate, then worker and HTTP in one process."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.worker_options import make_options, with_worker_options
from redrive.cli.support.worker_process import warn_of_unknown_settings
from redrive.errors import InvalidInput
from redrive.observe.logs import choose_style, configure
from redrive.settings import parse_networks

DEFAULT_CONCURRENCY = 10
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", min=0, max=65535, help="Else REDRIVE_PORT, else 8321; 0 takes any free one."),
]
Host = Annotated[
    str | None,
    typer.Option(
        "--host", metavar="ADDRESS", help="Else REDRIVE_HOST, else 127.0.0.1; others only where there are tokens."
    ),
]
Proxy = Annotated[
    list[str] | None,
    typer.Option(
        "--proxy", metavar="ADDRESS", help="A reverse proxy that is believed about who calls (REDRIVE_TRUSTED_PROXIES)."
    ),
]
NoWorker = Annotated[bool, typer.Option("--no-worker", help="Serve HTTP alone; redrive work runs the tasks.")]
Demo = Annotated[bool, typer.Option("--demo", help="Call the demo() of the app's module: a few tasks, once.")]


@with_worker_options("queues", "concurrency", concurrency="Tasks at once (else TASK_WORKER_CONCURRENCY, else 10).")
def up(
    given: dict[str, Any],
    port: Port = None,
    host: Host = None,
    demo: Demo = False,
    no_worker: NoWorker = False,
    proxy: Proxy = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Everything in one process: brings the store up to date, runs a worker with 10 slots (or as many as
    TASK_WORKER_CONCURRENCY or --concurrency say), serves HTTP. With --no-worker it serves HTTP alone."""
    if given and no_worker:
        raise InvalidInput("--no-worker runs no tasks: --queue and --concurrency mean nothing then")
    loaded = load(url, app, warns=False)
    settings = loaded.app.settings
    configure(choose_style(settings.log_format), level=settings.log_level)
    warn_of_unknown_settings(loaded.app)
    options = None
    if not no_worker:
        said = settings.source_of("concurrency") != "default"
        slots = settings.concurrency if said else DEFAULT_CONCURRENCY
        options = make_options(loaded.app, {"concurrency": slots, **given})
    if proxy:
        loaded.app.settings = settings.with_values(trusted_proxies=_networks(proxy))
    # Only here: importing the web framework takes longer than most commands take to run.
    from redrive.cli.support.up_process import run

    run(loaded, options, host or settings.host, settings.port if port is None else port, demo=demo, json=json)


def _networks(given: list[str]) -> list[str]:
    try:
        return parse_networks(",".join(given))
    except ValueError as error:
        raise InvalidInput(f"--proxy: {error}") from None
