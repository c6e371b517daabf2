"""``redrive webhooks``: endpoints and their secrets; ``delivery_commands`` has deliveries and sending events."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from redrive.cli.support.options import Reason
from redrive.errors import InvalidInput
from redrive.feature.cli import AppName, By, Create, Json, Url, look_at, operate, output
from redrive.webhooks.cli_output import print_deliveries, print_endpoint
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.delivery_commands import Account, EndpointId, deliveries, ping, redeliver, send, show_delivery
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.service import Endpoints

cli = typer.Typer(
    help="Webhooks: customers' endpoints, their secrets, deliveries, and sending events.", invoke_without_command=True
)
Events = Annotated[
    list[str] | None,
    typer.Option("--event", metavar="TYPE", help="Which events it wants: batch.completed, batch.* or * (all)."),
]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="For people.")]
Secret = Annotated[
    str | None, typer.Option("--secret", metavar="TEXT", help="One that the customer has; else one is made.")
]


@cli.callback()
def list_all(context: typer.Context, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Webhooks: customers' endpoints, their secrets, deliveries, and sending events. By itself: all endpoints."""
    if context.invoked_subcommand is None:
        endpoints(url=url, app=app, json=json)


@cli.command("endpoints")
def endpoints(
    account: Account = None,
    state: Annotated[str | None, typer.Option("--state", metavar="STATE", help="enabled or disabled.")] = None,
    direct: Annotated[bool, typer.Option("--direct", help="Those of calls that named a URL themselves.")] = False,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Endpoints, by account."""
    found = look_at(url, app, lambda own: own.of(Endpoints).list(account, state, direct=direct, limit=500))
    rows = found.rows(lambda page: page["items"])
    if json:
        output.emit_list([found.document(name, row) for name, row in rows], **found.missing)
        return
    if not rows:
        output.say("no endpoint yet; redrive webhooks add URL")
        return
    output.table(
        [*found.column, "endpoint", "account", "state", "events", "url"],
        [
            (*found.cell(name), one["id"], one["account"], _state(one), ", ".join(one["events"]), one["url"])
            for name, one in rows
        ],
    )


@cli.command("add")
def add(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The URL that events are sent to.")],
    account: Annotated[str, typer.Option("--account", metavar="NAME", help="Whose it is.")] = DEFAULT_ACCOUNT,
    event: Events = None,
    description: Description = None,
    secret: Secret = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="No secret of its own: that of its account, or of the settings.")
    ] = False,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    create: Create = False,
    json: Json = False,
) -> None:
    """Add an endpoint. Its secret is shown once."""
    made = operate(
        url,
        app,
        lambda own: own.of(Endpoints).add(account, target, event or (), description, secret=secret, shared=shared),
        by=by,
        create=create,
    )
    if json:
        output.emit(made)
        return
    output.say(f"endpoint {made['id']} of {made['account']} gets {', '.join(made['events'])}")
    _say_secret(made["secret"])


@cli.command("show")
def show(endpoint: EndpointId, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One endpoint, and its latest deliveries."""

    async def look(own: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return await own.of(Endpoints).show(endpoint), await own.of(Deliveries).list(endpoint, limit=10)

    found, latest = operate(url, app, look)
    if json:
        output.emit(found)
        return
    print_endpoint(found)
    if latest["items"]:
        print_deliveries(latest["items"])


@cli.command("edit")
def edit(
    endpoint: EndpointId,
    target: Annotated[str | None, typer.Option("--to", metavar="TARGET", help="Another URL.")] = None,
    event: Events = None,
    description: Description = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Change the URL, the events or the description; what is not given stays."""
    if target is None and event is None and description is None:
        raise InvalidInput("nothing to change", hint="--to, --event or --description")
    _done(
        operate(
            url,
            app,
            lambda own: own.of(Endpoints).edit(endpoint, url=target, events=event, description=description),
            by=by,
        ),
        json,
    )


@cli.command("rotate")
def rotate(
    endpoint: Annotated[str | None, typer.Argument(metavar="ENDPOINT", help="Else --account.")] = None,
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="The account's own secret.")] = None,
    overlap: Annotated[
        float | None,
        typer.Option(
            "--overlap", metavar="HOURS", help="How long the old one is valid (else WEBHOOKS_ROTATION_HOURS)."
        ),
    ] = None,
    secret: Secret = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Give an endpoint, or an account, a new secret. It is shown once."""
    if (endpoint is None) == (account is None):
        raise InvalidInput("name an endpoint or an account, one of them", hint="redrive webhooks rotate ENDPOINT")

    async def act(own: Any) -> dict[str, Any]:
        service: Endpoints = own.of(Endpoints)
        if account is not None:
            return await service.rotate_account(account, secret=secret, overlap_hours=overlap)
        return await service.rotate(endpoint or "", secret=secret, overlap_hours=overlap)

    made = operate(url, app, act, by=by)
    if json:
        output.emit(made)
        return
    _say_secret(made["secret"])
    output.say(f"the old one is valid for {made['overlap_hours']:g} hours more; requests carry a signature by each")


@cli.command("encrypt")
def encrypt(by: By = None, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Encrypt the secrets of the store by the newest of WEBHOOKS_SECRET_KEYS, also those from before."""

    async def act(own: Any) -> dict[str, int]:
        service: Endpoints = own.of(Endpoints)
        return await service.encrypt()

    done = operate(url, app, act, by=by)
    if json:
        output.emit(done)
        return
    output.say(f"{done['encrypted']} of {done['secrets']} secrets were encrypted by the newest key; the others are")


@cli.command("enable")
def enable(
    endpoint: EndpointId, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Send an endpoint events again, from now on."""
    _done(operate(url, app, lambda own: own.of(Endpoints).enable(endpoint, reason), by=by), json)


@cli.command("disable")
def disable(
    endpoint: EndpointId, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Send an endpoint nothing any more."""
    _done(operate(url, app, lambda own: own.of(Endpoints).disable(endpoint, reason), by=by), json)


@cli.command("remove")
def remove(
    endpoint: EndpointId, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Remove an endpoint and its secrets. Its deliveries stay to be looked at."""
    operate(url, app, lambda own: own.of(Endpoints).remove(endpoint, reason), by=by)
    output.emit({"removed": endpoint}) if json else output.say(f"endpoint {endpoint} is removed")


cli.command("deliveries")(deliveries)
cli.command("show-delivery")(show_delivery)
cli.command("redeliver")(redeliver)
cli.command("ping")(ping)
cli.command("send")(send)


def _say_secret(secret: str | None) -> None:
    if secret is not None:
        output.say(secret)
        typer.echo("This secret is shown only now: give it to whoever verifies the signatures.", err=True)


def _done(endpoint: dict[str, Any], json: bool) -> None:
    if json:
        output.emit(endpoint)
    else:
        print_endpoint(endpoint)


def _state(endpoint: dict[str, Any]) -> str:
    return "failing" if endpoint["state"] == "enabled" and endpoint["failing_since"] else str(endpoint["state"])
