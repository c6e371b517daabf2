"""``redrive webhooks``."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from redrive.cli.support.options import Reason
from redrive.errors import InvalidInput
from redrive.feature.cli import AppName, By, Json, Url, look_at, operate, output
from redrive.webhooks.cli_output import print_delivery, print_endpoint
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.events import DEFAULT_ACCOUNT
from redrive.webhooks.service import Endpoints

cli = typer.Typer(
    help="Webhooks: customers' endpoints, their secrets, deliveries, and sending events.", invoke_without_command=True
)
EndpointId = Annotated[str, typer.Argument(metavar="ENDPOINT", help="As the list of endpoints names it.")]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The id of a delivery, which is that of its task.")]
Account = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Only of this account.")]
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
    json: Json = False,
) -> None:
    """Add an endpoint. Its secret is shown once."""
    made = operate(
        url,
        app,
        lambda own: own.of(Endpoints).add(account, target, event or (), description, secret=secret, shared=shared),
        by=by,
        creates=True,
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
        _table(latest["items"])


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


@cli.command("deliveries")
def deliveries(
    endpoint: Annotated[str | None, typer.Argument(metavar="ENDPOINT", help="Only to this one.")] = None,
    account: Account = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="pending, completed, failed or cancelled.")
    ] = None,
    type: Annotated[str | None, typer.Option("--event-type", metavar="TYPE", help="Only events of this type.")] = None,
    event: Annotated[str | None, typer.Option("--event-id", metavar="ID", help="Only of this event.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", help="At most so many.")] = 50,
    before: Annotated[str | None, typer.Option("--before", metavar="ID", help="Continue behind this one.")] = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Deliveries, the newest first."""
    page = operate(
        url,
        app,
        lambda own: own.of(Deliveries).list(
            endpoint, account=account, state=state, event_type=type, event=event, limit=limit, before=before
        ),
    )
    if json:
        output.emit_list(page["items"], page["next"])
        return
    if not page["items"]:
        output.say("no such delivery")
        return
    _table(page["items"])
    if page["next"]:
        output.say(f"there are more: --before {page['next']}")


@cli.command("show-delivery")
def show_delivery(delivery: DeliveryId, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One delivery: what was sent and what was answered, attempt by attempt."""
    found = operate(url, app, lambda own: own.of(Deliveries).show(delivery))
    output.emit(found) if json else print_delivery(found)


@cli.command("redeliver")
def redeliver(
    delivery: DeliveryId, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Send a delivery that has ended once more; the id of the event stays."""
    found = operate(url, app, lambda own: own.of(Deliveries).redeliver(delivery, reason), by=by)
    output.emit(found) if json else output.say(f"delivery {found['id']} is {found['task'] or found['state']}")


@cli.command("ping")
def ping(endpoint: EndpointId, by: By = None, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Send an endpoint an event that means nothing, once, also if it is disabled."""
    found = operate(url, app, lambda own: own.of(Deliveries).ping(endpoint), by=by)
    if json:
        output.emit(found)
    else:
        output.say(f"enqueued; redrive webhooks show-delivery {found['id']} tells what came of it")


@cli.command("send")
def send(
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Of the event: invoice.paid.")],
    data: Annotated[str, typer.Argument(metavar="JSON", help="What it says.")] = "null",
    account: Annotated[str, typer.Option("--account", metavar="NAME", help="Whose endpoints.")] = DEFAULT_ACCOUNT,
    event_id: Annotated[str | None, typer.Option("--event-id", metavar="ID", help="Sent once by this id.")] = None,
    target: Annotated[str | None, typer.Option("--to", metavar="TARGET", help="To this URL alone.")] = None,
    by: By = None,
    url: Url = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Send an event to the endpoints of an account that want it."""
    document = _parsed(data)
    found = operate(
        url, app, lambda own: own.of(Deliveries).send(type, document, account, event_id=event_id, url=target), by=by
    )
    if json:
        output.emit(found)
        return
    number = len(found["deliveries"])
    output.say(f"event {found['event']}: {number} {'delivery' if number == 1 else 'deliveries'}")
    if not number:
        output.say(f"no enabled endpoint of {account} wants it: redrive webhooks endpoints --account {account}")
    for one in found["deliveries"]:
        output.say(f"  {one['delivery']} to {one['endpoint']}{'' if one['new'] else ' (known before)'}")


def _parsed(data: str) -> Any:
    try:
        return json_format.loads(data)
    except ValueError as error:
        raise InvalidInput(f"the data is no JSON: {error}", hint="""quote it: '{"id": 1}'""") from None


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


def _table(rows: list[dict[str, Any]]) -> None:
    output.table(
        ["delivery", "made", "type", "endpoint", "state", "#attempts"],
        [
            (
                one["id"],
                output.when(one["created_at"]),
                one["type"],
                one["endpoint"],
                one["task"] or one["state"],
                _tries(one),
            )
            for one in rows
        ],
    )


def _tries(one: dict[str, Any]) -> str:
    return "" if one["attempt_count"] is None else f"{one['attempt_count']}/{one['max_attempts']}"
