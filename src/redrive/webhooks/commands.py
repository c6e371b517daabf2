"""``redrive webhooks``: what the services declare. By hand: ``rotate``, which is about an endpoint or an account, and
``send``, whose data is typed as JSON."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from redrive.cli.declared import run
from redrive.errors import InvalidInput
from redrive.feature.cli import AppName, By, Json, Url, group_of
from redrive.ops.operator.declared import declared_by
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.service import Endpoints

cli = group_of(Endpoints, Deliveries, without=("rotate", "rotate_account", "send"))


@cli.command("rotate")
def rotate(
    endpoint: Annotated[str | None, typer.Argument(metavar="ENDPOINT", help="Else --account.")] = None,
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="The account's own secret.")] = None,
    overlap_hours: Annotated[
        float | None,
        typer.Option(
            "--overlap", metavar="HOURS", help="How long the old one is valid (else WEBHOOKS_ROTATION_HOURS)."
        ),
    ] = None,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="TEXT", help="One that the customer has; else one is made.")
    ] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Give an endpoint, or an account, a new secret. It is shown once."""
    new = {"secret": secret, "overlap_hours": overlap_hours}
    if endpoint is not None and account is None:
        run(Endpoints, declared_by(Endpoints)["rotate"], {"endpoint": endpoint, **new}, by, url, app, json)
    elif endpoint is None and account is not None:
        run(Endpoints, declared_by(Endpoints)["rotate_account"], {"account": account, **new}, by, url, app, json)
    else:
        raise InvalidInput("name an endpoint or an account, one of them", hint="redrive webhooks rotate ENDPOINT")


@cli.command("send")
def send(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Of the event: invoice.paid.")],
    data: Annotated[str, typer.Argument(metavar="JSON", help="What it says.")] = "null",
    account: Annotated[str, typer.Option("--account", metavar="NAME", help="Whose endpoints.")] = DEFAULT_ACCOUNT,
    event_id: Annotated[str | None, typer.Option("--event-id", metavar="ID", help="Sent once by this id.")] = None,
    target: Annotated[str | None, typer.Option("--to", metavar="TARGET", help="To this URL alone.")] = None,
    secret: Annotated[
        str | None, typer.Option("--secret", metavar="TEXT", help="To sign for that URL with; else the account's.")
    ] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Send an event to the endpoints of an account that want it, or to one URL."""
    given = {"type": type, "data": _parsed(data), "account": account, "event_id": event_id}
    given |= {"url": target, "secret": secret}
    run(Deliveries, declared_by(Deliveries)["send"], given, by, url, app, json)


def _parsed(data: str) -> Any:
    try:
        return json_format.loads(data)
    except ValueError as error:
        raise InvalidInput(f"the data is no JSON: {error}", hint="""quote it: '{"id": 1}'""") from None
