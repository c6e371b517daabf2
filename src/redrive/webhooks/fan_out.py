"""Finds who is to be told of an event, and makes one Commit of all deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.reactions import Rows
from redrive.webhooks.address_guard import check_url
from redrive.webhooks.delivery_tasks import deliveries
from redrive.webhooks.events import FEATURE, Event, chosen, direct_endpoint
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import check_secret
from redrive.webhooks.stored_secrets import encrypt

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store


async def fan_out(
    store: Store,
    settings: WebhookSettings,
    event: Event,
    *,
    url: str | None = None,
    secret: str | None = None,
    trace_id: str | None = None,
) -> tuple[list[str], Commit]:
    """Returns the endpoints that get an event, and the Commit that enqueues the deliveries: to those of the account
    that want it, or to ``url`` alone, signed with ``secret`` or that of the account."""
    if url is None:
        if secret is not None:
            raise InvalidInput(
                "a secret is given and no URL", hint="endpoints of the account have theirs: leave it out"
            )
        endpoints = chosen(event, await store.sql.feature_rows(FEATURE, "targets", event.account))
        return endpoints, deliveries(event, endpoints, settings.attempts, trace_id=trace_id)
    check_url(url, https_only=settings.https_only)
    used = direct_endpoint(event.account, url, None if secret is None else check_secret(secret))
    commit = deliveries(event, [used["id"]], settings.attempts, trace_id=trace_id)
    rows = [Rows(FEATURE, "endpoint_used", (used,))]
    if secret is not None:
        kept = {
            "id": f"sec_{used['id']}",
            "owner": f"endpoint:{used['id']}",
            "secret": encrypt(settings.secret_keys, secret),
        }
        rows.append(Rows(FEATURE, "secret_added", (kept,)))
    commit.rows = [*rows, *commit.rows]
    return [used["id"]], commit


def told(event: Event, endpoints: Sequence[str], applied: Applied) -> dict[str, Any]:
    """Returns what became of an event, for whoever sent it. ``new``: False where it had been enqueued before."""
    found = [
        {"delivery": str(answer.id), "endpoint": endpoint, "new": answer.created}
        for endpoint, answer in zip(endpoints, applied.enqueued, strict=True)
    ]
    return {"event": event.id, "type": event.type, "account": event.account, "deliveries": found}
