"""``app.webhooks``: what the application itself does with webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.app import App
from redrive.kernel.task import NewTask
from redrive.ops.access import Caller, Role
from redrive.ops.operator.declared import document
from redrive.ops.views import Sight
from redrive.webhooks.address_guard import check_signed
from redrive.webhooks.delivery_tasks import event_result, event_task, fan_out
from redrive.webhooks.events import DEFAULT_ACCOUNT, Event
from redrive.webhooks.service import Endpoints
from redrive.webhooks.settings import WebhookSettings

THE_APPLICATION = Caller("app", Role.ADMIN)


class Webhooks:
    """Sends events, and manages endpoints where an application lets its customers do so."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def send(
        self,
        event_type: str,
        data: Any = None,
        *,
        account: str = DEFAULT_ACCOUNT,
        event_id: str | None = None,
        url: str | None = None,
        secret: str | None = None,
        connection: Any = None,
    ) -> dict[str, Any]:
        """Enqueue one delivery for each endpoint of the account that wants this event, all or none; or one for ``url``
        alone. With ``connection``, in the caller's own transaction. Sent again by the same ``event_id``, it is sent
        once. ``url`` is refused where nothing could be signed: without ``secret``, one of the account or settings."""
        event = Event(event_type, data, account) if event_id is None else Event(event_type, data, account, event_id)
        own = self._app.settings.of(WebhookSettings)
        store = await self._app.store()
        if url is not None and secret is None:
            await check_signed(store, own, account, url)
        endpoints, commit = await fan_out(store, own, event, url=url, secret=secret)
        if not endpoints:
            return {"event": event.id, "type": event.type, "account": account, "deliveries": []}
        return event_result(event, endpoints, await self._app.apply(commit, connection=connection))

    @staticmethod
    def event_task(
        event_type: str,
        data: Any,
        account: str = DEFAULT_ACCOUNT,
        event_id: str | None = None,
        url: str | None = None,
    ) -> NewTask:
        """Returns a task that sends an event when it runs, for a Commit or the effects of a reaction."""
        return event_task(event_type, data, account, event_id, url)

    async def add(
        self,
        url: str,
        *,
        account: str = DEFAULT_ACCOUNT,
        events: Sequence[str] = (),
        description: str | None = None,
        secret: str | None = None,
        shared: bool = False,
    ) -> dict[str, Any]:
        """Add an endpoint; ``secret`` of what is returned is for the customer, and shown this once."""
        own = await self._endpoints()
        return _whole(await own.add(url, account, [*events], description, secret, shared))

    async def endpoints(self, account: str | None = None) -> list[dict[str, Any]]:
        """Returns the endpoints of an account, without their secrets."""
        return [_whole(one) for one in (await (await self._endpoints()).list(account)).items]

    async def rotate(self, endpoint: str, *, overlap_hours: float | None = None) -> dict[str, Any]:
        """Give an endpoint a new secret, shown this once; the old one stays valid for a while."""
        return _whole(await (await self._endpoints()).rotate(endpoint, overlap_hours=overlap_hours))

    async def remove(self, endpoint: str, reason: str | None = None) -> None:
        """Remove an endpoint."""
        await (await self._endpoints()).remove(endpoint, reason)

    async def _endpoints(self) -> Endpoints:
        return (await self._app.operator(THE_APPLICATION)).of(Endpoints)


def _whole(view: object) -> dict[str, Any]:
    found: dict[str, Any] = document(view, Sight(THE_APPLICATION.role))
    return found
