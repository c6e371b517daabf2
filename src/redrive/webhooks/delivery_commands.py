"""``redrive webhooks deliveries``, ``show-delivery``, ``redeliver``, ``ping`` and ``send``."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from redrive.cli.support.options import Reason
from redrive.errors import InvalidInput
from redrive.feature.cli import AppName, By, Json, Url, operate, output
from redrive.webhooks.cli_output import print_deliveries, print_delivery
from redrive.webhooks.deliveries import Deliveries
from redrive.webhooks.events import DEFAULT_ACCOUNT

EndpointId = Annotated[str, typer.Argument(metavar="ENDPOINT", help="As the list of endpoints names it.")]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The id of a delivery, which is that of its task.")]
Account = Annotated[str | None, typer.Option("--account", metavar="NAME", help="Only of this account.")]


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
    print_deliveries(page["items"])
    if page["next"]:
        output.say(f"there are more: --before {page['next']}")


def show_delivery(delivery: DeliveryId, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """One delivery: what was sent and what was answered, attempt by attempt."""
    found = operate(url, app, lambda own: own.of(Deliveries).show(delivery))
    output.emit(found) if json else print_delivery(found)


def redeliver(
    delivery: DeliveryId, reason: Reason = None, by: By = None, url: Url = None, app: AppName = None, json: Json = False
) -> None:
    """Send a delivery that has ended once more; the id of the event stays."""
    found = operate(url, app, lambda own: own.of(Deliveries).redeliver(delivery, reason), by=by)
    output.emit(found) if json else output.say(f"delivery {found['id']} is {found['task'] or found['state']}")


def ping(endpoint: EndpointId, by: By = None, url: Url = None, app: AppName = None, json: Json = False) -> None:
    """Send an endpoint an event that means nothing, once, also if it is disabled."""
    found = operate(url, app, lambda own: own.of(Deliveries).ping(endpoint), by=by)
    if json:
        output.emit(found)
    else:
        output.say(f"enqueued; redrive webhooks show-delivery {found['id']} tells what came of it")


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
