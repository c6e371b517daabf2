"""``redrive deploy``: what other programs need to run and watch redrive, made from its own tables."""

from __future__ import annotations

import getpass
import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from redrive.app import App
from redrive.cli.support import output
from redrive.cli.support.loading import Loaded, load
from redrive.cli.support.options import AppName
from redrive.cli.support.worker_options import start_of
from redrive.errors import InvalidInput
from redrive.observe.feature_metrics import table_of
from redrive.observe.grafana import dashboard
from redrive.observe.prometheus_rules import rule_file
from redrive.ops.alerts.own_rules import all_more_rules
from redrive.ops.deploy import files
from redrive.ops.deploy.programs import Program, Started, programs_of, secrets_of, unserved

HELP = "Files for deployment and monitoring, printed: supervisor, systemd, kubernetes, compose, grafana, prometheus."
deploy_cli = typer.Typer(help=HELP, no_args_is_help=True)

Directory = Annotated[
    Path | None, typer.Option("--directory", metavar="PATH", help="Where programs run (else the current one).")
]
User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="As whom (else who types this, if not root).")]
Logs = Annotated[
    Path, typer.Option("--logs", metavar="PATH", help="The folder of log files; it has to be there before they start.")
]
Command = Annotated[
    str | None, typer.Option("--command", metavar="PATH", help="The redrive command (else the one that runs this).")
]
Image = Annotated[str, typer.Option("--image", metavar="NAME", help="The image with the application in it.")]
Http = Annotated[bool, typer.Option("--http/--no-http", help="With redrive up, or workers alone.")]
Into = Annotated[
    Path | None, typer.Option("--into", metavar="FOLDER", help="Write each unit into a file there instead.")
]
LOGS = Path("/var/log/redrive")
IMAGE = "redrive:latest"


@deploy_cli.callback()
def group() -> None:
    """Files for deployment and monitoring, printed: supervisor, systemd, kubernetes, compose, grafana, prometheus."""


@deploy_cli.command()
def supervisor(
    directory: Directory = None,
    user: User = None,
    logs: Logs = LOGS,
    command: Command = None,
    http: Http = True,
    app: AppName = None,
) -> None:
    """Print a file for supervisord: one program for each group of workers, and one for HTTP."""
    loaded = load(None, app, warns=False)
    place = _place(loaded, directory, user, logs, command)
    if not logs.is_dir():
        output.warn(f"{logs} is not here, and supervisord does not start without it; make it first: {place.folder}")
    typer.echo(files.supervisor(_programs(loaded.app, http, shared_host=True), place), nl=False)


@deploy_cli.command()
def systemd(
    directory: Directory = None,
    user: User = None,
    command: Command = None,
    http: Http = True,
    into: Into = None,
    app: AppName = None,
) -> None:
    """Print units for systemd: a service for each group of workers, one for HTTP, and a target of all."""
    loaded = load(None, app, warns=False)
    place = _place(loaded, directory, user, LOGS, command)
    for name, text in files.systemd(_programs(loaded.app, http, shared_host=True), place).items():
        if into is None:
            typer.echo(f"# /etc/systemd/system/{name}\n{text}")
        else:
            into.mkdir(parents=True, exist_ok=True)
            (into / name).write_text(text, encoding="utf-8")
            typer.echo(into / name)


@deploy_cli.command()
def kubernetes(image: Image = IMAGE, http: Http = True, app: AppName = None) -> None:
    """Print manifests for Kubernetes: Deployments with probes, a Service, a Job that migrates."""
    loaded = load(None, app, warns=False)
    secrets = secrets_of(loaded.app.settings, loaded.app.features)
    typer.echo(files.kubernetes(_programs(loaded.app, http), image, _environment(loaded), secrets), nl=False)


@deploy_cli.command()
def compose(image: Image = IMAGE, http: Http = True, app: AppName = None) -> None:
    """Print a file for Docker Compose: PostgreSQL, workers, HTTP; Prometheus and Grafana with --profile monitoring."""
    loaded = load(None, app, warns=False)
    urls = [one.url_from for one in loaded.app.settings.connections.values() if one.url_from]
    variables = [name for name in urls if name != "REDRIVE_URL"]
    programs, environment = _programs(loaded.app, http), _environment(loaded)
    rules, board = _rules(loaded.app), dashboard(table_of(loaded.app.features))
    typer.echo(files.compose(programs, image, environment, variables, rules, board), nl=False)


@deploy_cli.command()
def grafana(app: AppName = None) -> None:
    """Print a Grafana dashboard of all metrics, also those of the application's features, to be imported."""
    typer.echo(json.dumps(dashboard(table_of(load(None, app, warns=False).app.features)), indent=2))


@deploy_cli.command()
def prometheus(app: AppName = None) -> None:
    """Print the rules of alerts for Prometheus, with the thresholds of the settings."""
    typer.echo(_rules(load(None, app, warns=False).app), nl=False)


def _rules(app: App) -> str:
    own = all_more_rules(app.settings, app.features)
    return rule_file(app.settings.alerts.limits, app.settings.alert_runbooks, [*app.connections], own)


def _programs(app: App, http: bool, *, shared_host: bool = False) -> list[Program]:
    names: list[str | None] = [*app.settings.workers] or [None]
    starts = [(name, start_of(app, {}, None, name, None)) for name in names]
    started = [Started(name, one.options, one.processes, one.connection) for name, one in starts]
    if left := unserved(app.settings, app.queues(), app.registry.feature_queues(), started):
        output.warn(
            f"no group of workers serves {', '.join(left)}: tasks there wait; name them in the queues of a group, or"
            " leave queues out of one, which serves all"
        )
    return programs_of(app.settings, app.registry, started, api=http, shared_host=shared_host)


def _place(loaded: Loaded, directory: Path | None, user: str | None, logs: Path, command: str | None) -> files.Place:
    where = (directory or Path.cwd()).absolute()
    own = Path(sys.argv[0]).absolute() if Path(sys.argv[0]).name == "redrive" else shutil.which("redrive")
    chosen = command or str(own or f"{sys.executable} -m redrive.cli")
    # A store that is a file has to be written to, and what lies beside it.
    folders = sorted({one.file.parent for one in loaded.app.connections.values() if one.file is not None})
    secrets = secrets_of(loaded.app.settings, loaded.app.features)
    return files.Place(chosen, where, user or _whoever(), logs, _environment(loaded), writes=folders, secrets=secrets)


def _whoever() -> str:
    """Returns who types this; handlers run as nobody's root unless somebody says so."""
    name = getpass.getuser()
    if name == "root":
        raise InvalidInput(
            "programs would run as root", hint="say as whom: --user NAME, or --user root if that is meant"
        )
    return name


def _environment(loaded: Loaded) -> dict[str, str]:
    """Returns what programs are told besides the secrets."""
    told = {"REDRIVE_ENV": "production", "REDRIVE_LOG": "json"}
    return told | ({"REDRIVE_APP": loaded.spec} if loaded.spec else {})
