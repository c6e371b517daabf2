"""``redrive deploy``: what other programs need to run and watch redrive, made from its own tables."""

from __future__ import annotations

import json

import typer

from redrive.cli.support.loading import load
from redrive.cli.support.options import AppName

deploy_cli = typer.Typer(
    help="Files for deployment and monitoring, printed: grafana, prometheus.", no_args_is_help=True
)


@deploy_cli.callback()
def group() -> None:
    """Files for deployment and monitoring, printed: grafana, prometheus."""


@deploy_cli.command()
def grafana(app: AppName = None) -> None:
    """Print a Grafana dashboard of all metrics, also those of the application's features, to be imported."""
    from redrive.observe.feature_metrics import table_of
    from redrive.observe.grafana import dashboard

    typer.echo(json.dumps(dashboard(table_of(load(None, app, warns=False).app.features)), indent=2))


@deploy_cli.command()
def prometheus(app: AppName = None) -> None:
    """Print the rules of alerts for Prometheus, with the thresholds of the settings."""
    from redrive.observe.prometheus_rules import rule_file

    settings = load(None, app, warns=False).app.settings
    typer.echo(rule_file(settings.alerts.limits, settings.alert_runbooks, settings.alerts.own), nl=False)
