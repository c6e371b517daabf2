"""The kind of an event, which becomes deliveries when it runs: for those who cannot look up endpoints themselves."""

from __future__ import annotations

from typing import Any

from redrive.handlers.context import Context
from redrive.kernel.task import NewTask
from redrive.webhooks.address_guard import check_url
from redrive.webhooks.delivery_handler import moment_of
from redrive.webhooks.events import DEFAULT_ACCOUNT, Event
from redrive.webhooks.fan_out import fan_out
from redrive.webhooks.kinds import QUEUE, kinds
from redrive.webhooks.settings import WebhookSettings


@kinds.task("WEBHOOK_EVENT", queue=QUEUE, max_attempts=10, public=("event_type", "event_id", "account"))
async def expand(
    ctx: Context, event_type: str, data: Any, account: str, event_id: str, url: str | None = None
) -> dict[str, int]:
    """Enqueues a delivery to each endpoint that wants the event, all in one Commit. Run again after a crash, it finds
    those that were enqueued by their keys."""
    event = Event(event_type, data, account, event_id, moment_of(ctx.task.created_at))
    settings = ctx.settings.of(WebhookSettings)
    endpoints, commit = await fan_out(ctx.store, settings, event, url=url, trace_id=ctx.task.trace_id)
    if endpoints:
        await ctx.store.apply(commit)
    return {"deliveries": len(endpoints)}


def event_task(
    event_type: str,
    data: Any,
    account: str = DEFAULT_ACCOUNT,
    event_id: str | None = None,
    url: str | None = None,
    scope: str | None = None,
) -> NewTask:
    """Returns a task that, when it runs, sends an event to the endpoints of an account that want it, or to ``url``
    alone. Looks at nothing: made for the effects of a reaction. Asked for twice by one id, it is sent once.
    ``scope``: whom it is about, where that is not the account."""
    event = Event(event_type, data, account) if event_id is None else Event(event_type, data, account, event_id)
    if url is not None:
        check_url(url)
    return expand.options(scope=scope or account, idempotency_key=f"redrive:webhook-event:{event.id}").new(
        event_type=event.type, data=event.data, account=account, event_id=event.id, url=url
    )
