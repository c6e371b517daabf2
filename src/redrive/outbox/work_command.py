"""``redrive outbox work``: a worker on the queues of projections, with the outbox's own settings."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from redrive.cli.commands.work import MetricsHost, Processes, serve
from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName, Json, Url
from redrive.cli.support.signals import starting
from redrive.cli.support.sockets import free_port
from redrive.cli.support.worker_options import with_worker_options
from redrive.outbox.projections import projection_in, projections_of
from redrive.outbox.settings import OutboxSettings

DEFAULT_METRICS_PORT = 9108
Names = Annotated[list[str] | None, typer.Argument(metavar="PROJECTION", help="Which ones; else all.")]
WorkerId = Annotated[
    str | None,
    typer.Option(
        "--id", metavar="NAME", help="The worker's name (else OUTBOX_WORKER_ID, else TASK_WORKER_ID, else generated)."
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="N",
        min=0,
        max=65535,
        help="Serve /healthz, /readyz and /metrics there (else REDRIVE_METRICS_PORT, else OUTBOX_METRICS_PORT, else "
        f"{DEFAULT_METRICS_PORT}); 0 takes any free one.",
    ),
]
WORKERS_OPTIONS = ("concurrency", "sleep", "tries", "max_time", "max_jobs", "once", "stop_when_empty")


@with_worker_options(*WORKERS_OPTIONS)
@starting()
def work(
    given: dict[str, Any],
    projection: Names = None,
    processes: Processes = None,
    worker_id: WorkerId = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Project events until stopped, by the settings OUTBOX_LEASE_SECONDS, OUTBOX_RECLAIM_INTERVAL_SECONDS,
    OUTBOX_MAX_PROCESSING_SECONDS, OUTBOX_MAX_ATTEMPTS, OUTBOX_WORKER_ID and OUTBOX_METRICS_PORT (9108, or the next free
    one if it is not set; 0 takes any)."""
    loaded = load(url, app, warns=False)
    own, registry = loaded.app.settings.of(OutboxSettings), loaded.app.registry
    names = [projection_in(registry, name).queue for name in projection or projections_of(registry)]
    settings = {
        "lease_ms": round(own.lease_seconds * 1000),
        "recovery_interval_ms": round(own.reclaim_interval_seconds * 1000),
    }
    _say_in_environment(settings)
    loaded.app.settings = loaded.app.settings.with_values(**settings)
    configured = loaded.app.settings.metrics_port, loaded.app.settings.outbox_metrics_port
    port = metrics_port
    if metrics_port is None and configured == (None, None):
        port = free_port(metrics_host or loaded.app.settings.metrics_host, DEFAULT_METRICS_PORT)
    serve(
        loaded,
        {**given, "queues": names},
        processes=processes,
        worker_id=worker_id or own.worker_id,
        metrics_port=port,
        metrics_host=metrics_host,
        fleet_metrics=True,
        url=url,
        json=json,
    )


def _say_in_environment(settings: dict[str, int]) -> None:
    """Tells worker processes that a supervisor starts: they are plain workers."""
    for name, value in settings.items():
        os.environ[f"TASK_WORKER_{name.upper()}"] = str(value)
