"""Deliveries: listed, shown with each request and answer, sent again; and events that an operator sends."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

from redrive.errors import Conflict, InvalidInput, NotFound
from redrive.kernel.audit import Audit
from redrive.kernel.operation import Action
from redrive.kernel.payload import decode
from redrive.kernel.records import Put
from redrive.kernel.task import State, Task
from redrive.ops.allowance import PlannedAction
from redrive.ops.inspect import parse_id
from redrive.ops.operator.declared import Given, Limit, Page, Reason, action, look
from redrive.ops.operator.session import Service
from redrive.ops.operator.tasks import TaskService
from redrive.webhooks.address_guard import check_signed
from redrive.webhooks.delivery_tasks import body_of, deliveries, event_result, fan_out, moment_of
from redrive.webhooks.documents import (
    DeliveryDetail,
    DeliveryView,
    EndpointUnknown,
    Sent,
    SentTo,
    attempt_view,
    delivery_fields,
)
from redrive.webhooks.events import DEFAULT_ACCOUNT, FEATURE, Event
from redrive.webhooks.settings import WebhookSettings

STATES = ("pending", "completed", "failed", "cancelled")

DeliveryId = Annotated[str, Given("The id of a delivery, which is that of its task.", metavar="DELIVERY")]
OfAccount = Annotated[str | None, Given("Only of this account.", metavar="NAME")]


class DeliveryUnknown(NotFound):
    code = "WEBHOOK_DELIVERY_UNKNOWN"


class DeliveryNotPossible(Conflict):
    code = "WEBHOOK_DELIVERY_NOT_POSSIBLE"


class WebhookService(Service):
    """What the services of webhooks have in common."""

    @property
    def _own(self) -> WebhookSettings:
        return self._session.settings.of(WebhookSettings)

    async def _rows(self, statement: str, *args: Any) -> builtins.list[dict[str, Any]]:
        return await self._store.sql.feature_rows(FEATURE, statement, *args)

    async def _endpoint(self, endpoint: str) -> dict[str, Any]:
        rows = await self._rows("endpoint", endpoint)
        if not rows:
            hint = "redrive webhooks endpoints lists them"
            raise EndpointUnknown(f"there is no webhook endpoint {endpoint!r}", hint=hint)
        return rows[0]


class Deliveries(WebhookService):
    """Deliveries, with each request and answer; and sending events."""

    @look("GET /api/webhooks/deliveries", command="deliveries", empty="no such delivery")
    async def list(
        self,
        endpoint: Annotated[str | None, Given("Only to this one.", metavar="ENDPOINT", positional=True)] = None,
        account: OfAccount = None,
        state: Annotated[str | None, Given("pending, completed, failed or cancelled.", metavar="STATE")] = None,
        type: Annotated[str | None, Given("Only events of this type.", metavar="TYPE", option="--event-type")] = None,
        event: Annotated[str | None, Given("Only of this event.", metavar="ID", option="--event-id")] = None,
        limit: Limit = 50,
        before: Annotated[str | None, Given("Continue behind this one.", metavar="ID")] = None,
    ) -> Page[DeliveryView]:
        """Deliveries, the newest first. Those that are pending say by `task` whether they wait or run."""
        if state is not None and state not in STATES:
            raise InvalidInput(f"{state!r} is no state of a delivery", hint=", ".join(STATES))
        place = None if before is None else str(parse_id(before))
        asked = {"event": event, "endpoint": endpoint, "account": account, "state": state}
        by = next((f"_by_{name}" for name, value in asked.items() if value is not None), "")
        rows = await self._rows(f"deliveries{by}", endpoint, account, state, type, event, place, limit + 1)
        ids = [_id(row) for row in rows[:limit]]
        tasks = await self._store.get_many(ids, documents=0)
        items = [DeliveryView(**delivery_fields(row, tasks.get(_id(row)))) for row in rows[:limit]]
        return Page(items, items[-1].id if len(rows) > limit else None)

    @look("GET /api/webhooks/deliveries/{delivery}", command="show-delivery", said="{done.sentence}")
    async def show(self, delivery: DeliveryId) -> DeliveryDetail:
        """One delivery: what was sent and what was answered, attempt by attempt."""
        row, task = await self._row(delivery), await self._task(delivery)
        rows = await self._rows("attempts", str(row["task_id"]))
        attempts = [attempt_view(one) for one in rows]
        return DeliveryDetail(**delivery_fields(row, task), attempts=attempts, body=_body(task, rows))

    @action(
        "POST /api/webhooks/deliveries/{delivery}/redeliver",
        said="delivery {done.id} is sent once more",
        page="/webhooks/deliveries/{done.id}",
        status=202,
    )
    async def redeliver(self, delivery: DeliveryId, reason: Reason = None) -> DeliveryDetail:
        """Send a delivery that has ended once more: a failed or cancelled one by its own task, one that arrived by
        another. The id of the event stays."""
        row, task = await self._row(delivery), await self._task(delivery)
        endpoint = await self._endpoint(row["endpoint_id"])
        if endpoint["state"] == "disabled":
            raise DeliveryNotPossible(
                f"the endpoint {endpoint['id']} is disabled",
                hint=f"redrive webhooks enable {endpoint['id']}, then again",
            )
        if task is not None and task.state in (State.FAILED, State.CANCELLED):
            await TaskService(self._session).retry(task.id, reason)
            return await self.show(delivery)
        if row["state"] == "pending":
            raise DeliveryNotPossible("it has not ended yet", hint="wait, or look why: redrive why " + delivery)
        return await self._again(row, reason)

    async def _again(self, row: dict[str, Any], reason: str | None) -> DeliveryDetail:
        """Sends what has arrived once more, by another task."""
        body = _body(None, await self._rows("attempts", str(row["task_id"])))
        if body is None:
            raise DeliveryNotPossible("what was sent is no longer kept, or too long", hint="send the event again")
        sent = json.loads(body)
        event = Event(row["event_type"], sent["data"], row["account"], row["event_id"], sent["timestamp"])
        [following] = await self._rows("rounds", event.id, row["endpoint_id"])
        commit = deliveries(event, [row["endpoint_id"]], self._own.attempts, round=following["n"])
        target = f"webhook:{row['endpoint_id']}"
        note = Audit(self._who, "WEBHOOK_REDELIVERED", reason, _id(row), target=target, scope=row["account"])
        commit.audits = [note]

        async def act(puts: Sequence[Put]) -> UUID:
            commit.puts = puts
            return (await self._store.apply(commit)).enqueued[0].id

        made = await self._session.alone(PlannedAction(Action.RETRY, 1), act)
        return await self.show(str(made))

    @action("POST /api/webhooks/events", said="{done.sentence}", status=202)
    async def send(
        self,
        type: Annotated[str, Given("Of the event: invoice.paid.", metavar="TYPE", positional=True)],
        data: Annotated[Any, Given("What it says.", metavar="JSON", positional=True)] = None,
        account: Annotated[str, Given("Whose endpoints.", metavar="NAME")] = DEFAULT_ACCOUNT,
        event_id: Annotated[str | None, Given("Sent once by this id.", metavar="ID")] = None,
        url: Annotated[
            str | None, Given("To this URL alone.", metavar="TARGET", option="--to", argument="target")
        ] = None,
        secret: Annotated[str | None, Given("To sign for that URL with.", metavar="TEXT")] = None,
    ) -> Sent:
        """Send an event to the endpoints of an account that want it, or to one URL."""
        event = Event(type, data, account) if event_id is None else Event(type, data, account, event_id)
        if url is not None and secret is None:
            await check_signed(self._store, self._own, account, url)
        endpoints, commit = await fan_out(self._store, self._own, event, url=url, secret=secret)
        after = {"type": event.type, "deliveries": len(endpoints)}
        commit.audits = [Audit(self._who, "WEBHOOK_EVENT_SENT", target=f"event:{event.id}", scope=account, after=after)]
        found = event_result(event, endpoints, await self._store.apply(commit))
        return Sent(**{**found, "deliveries": [SentTo(**one) for one in found["deliveries"]]})

    async def _row(self, delivery_id: str) -> dict[str, Any]:
        rows = await self._rows("delivery", str(parse_id(delivery_id)))
        if not rows:
            raise DeliveryUnknown(
                f"there is no delivery {delivery_id}", hint="redrive webhooks deliveries lists the latest"
            )
        return rows[0]

    async def _task(self, delivery_id: str) -> Task | None:
        wanted = parse_id(delivery_id)
        return (await self._store.get_many([wanted])).get(wanted)


def _body(task: Task | None, attempts: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what is sent, or was: of the task, or of the request that was its last."""
    if task is not None and task.payload is not None and task.created_at is not None:
        sent = decode(task.payload) if isinstance(task.payload, str) else task.payload
        return body_of(sent["event_type"], sent.get("at") or moment_of(task.created_at), sent.get("data")).decode()
    requests = [json.loads(one["request"]) for one in attempts if one["request"] is not None]
    return next((one["body"] for one in requests if "body" in one), None)


def _id(row: Mapping[str, Any]) -> UUID:
    return UUID(str(row["task_id"]))
