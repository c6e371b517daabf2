"""Deliveries: listed, shown with each request and answer, sent again; and events that an operator sends."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from redrive.errors import Conflict, InvalidInput, NotFound
from redrive.kernel.audit import Audit
from redrive.kernel.commit import Commit
from redrive.kernel.operation import Action
from redrive.kernel.payload import decode
from redrive.kernel.records import Put
from redrive.kernel.task import State, Task
from redrive.ops.access import Role
from redrive.ops.allowance import PlannedAction
from redrive.ops.inspect import parse_id
from redrive.ops.operator.session import Service
from redrive.ops.operator.tasks import TaskService
from redrive.webhooks.delivery_tasks import body_of, deliveries, delivery, event_result, fan_out, made_rows, moment_of
from redrive.webhooks.documents import attempt_view, delivery_view
from redrive.webhooks.events import DEFAULT_ACCOUNT, FEATURE, PING, Event
from redrive.webhooks.service import EndpointUnknown
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.url_check import check_signed

MOST_AT_ONCE = 500
STATES = ("pending", "completed", "failed", "cancelled")


class DeliveryUnknown(NotFound):
    code = "WEBHOOK_DELIVERY_UNKNOWN"


class DeliveryNotPossible(Conflict):
    code = "WEBHOOK_DELIVERY_NOT_POSSIBLE"


class Deliveries(Service):
    async def list(
        self,
        endpoint: str | None = None,
        *,
        account: str | None = None,
        state: str | None = None,
        event_type: str | None = None,
        event: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> dict[str, Any]:
        """A page of deliveries, the newest first; ``next`` continues it. ``state``: pending (waits or runs), completed,
        failed, cancelled; those that wait say how in ``task``."""
        self._session.may(Role.VIEWER)
        if state is not None and state not in STATES:
            raise InvalidInput(f"{state!r} is no state of a delivery", hint=", ".join(STATES))
        limit = max(1, min(limit, MOST_AT_ONCE))
        place = None if before is None else str(parse_id(before))
        asked = {"event": event, "endpoint": endpoint, "account": account, "state": state}
        by = next((f"_by_{name}" for name, value in asked.items() if value is not None), "")
        rows = await self._rows(f"deliveries{by}", endpoint, account, state, event_type, event, place, limit + 1)
        found = [delivery_view(row) for row in rows[:limit]]
        tasks = await self._store.get_many([UUID(one["id"]) for one in found], documents=0)
        items = [{**one, **_progress(tasks.get(UUID(one["id"])))} for one in found]
        return {"items": items, "next": items[-1]["id"] if len(rows) > limit else None}

    async def show(self, delivery_id: str) -> dict[str, Any]:
        """One delivery: each attempt with what was sent and answered, for those who may see what tasks carry."""
        self._session.may(Role.VIEWER)
        row, task = await self._row(delivery_id), await self._task(delivery_id)
        whole = self._session.caller.role >= Role.OPERATOR
        rows = await self._rows("attempts", str(row["task_id"]))
        body = _body(task, rows) if whole else None
        attempts = [attempt_view(one, whole=whole) for one in rows]
        return {**delivery_view(row), **_progress(task), "attempts": attempts, "body": body}

    async def redeliver(self, delivery_id: str, reason: str | None = None) -> dict[str, Any]:
        """Send a delivery that has ended once more: a failed or cancelled one by its own task, one that arrived by
        another. The id of the event stays."""
        who = self._session.may(Role.OPERATOR)
        row, task = await self._row(delivery_id), await self._task(delivery_id)
        endpoint = await self._endpoint(row["endpoint_id"])
        if endpoint["state"] == "disabled":
            raise DeliveryNotPossible(
                f"the endpoint {endpoint['id']} is disabled",
                hint=f"redrive webhooks enable {endpoint['id']}, then again",
            )
        if task is not None and task.state in (State.FAILED, State.CANCELLED):
            await TaskService(self._session).retry(task.id, reason)
            return await self.show(delivery_id)
        if row["state"] == "pending":
            raise DeliveryNotPossible("it has not ended yet", hint="wait, or look why: redrive why " + delivery_id)
        return await self._again(who, row, reason)

    async def _again(self, who: str, row: dict[str, Any], reason: str | None) -> dict[str, Any]:
        """Sends what has arrived once more, by another task."""
        body = _body(None, await self._rows("attempts", str(row["task_id"])))
        if body is None:
            raise DeliveryNotPossible("what was sent is no longer kept, or too long", hint="send the event again")
        sent = json.loads(body)
        event = Event(row["event_type"], sent["data"], row["account"], row["event_id"], sent["timestamp"])
        [following] = await self._rows("rounds", event.id, row["endpoint_id"])
        commit = deliveries(event, [row["endpoint_id"]], self._own.attempts, round=following["n"])
        commit.audits = [self._audit(who, "WEBHOOK_REDELIVERED", row["endpoint_id"], row["account"], reason, _id(row))]

        async def act(puts: Sequence[Put]) -> UUID:
            commit.puts = puts
            return (await self._store.apply(commit)).enqueued[0].id

        made = await self._session.alone(PlannedAction(Action.RETRY, 1), act)
        return await self.show(str(made))

    async def ping(self, endpoint: str) -> dict[str, Any]:
        """Send an endpoint an event that means nothing, once, also if it is disabled."""
        who = self._session.may(Role.OPERATOR)
        row = await self._endpoint(endpoint)
        event = Event(PING, {"endpoint": endpoint}, row["account"])
        task = delivery(event, endpoint, 1, forced=True)
        said = self._audit(who, "WEBHOOK_PINGED", endpoint, row["account"], None, task.id)
        await self._store.apply(Commit(enqueues=[task], rows=[made_rows(event, [(endpoint, task)], 0)], audits=[said]))
        return await self.show(str(task.id))

    async def send(
        self,
        event_type: str,
        data: Any = None,
        account: str = DEFAULT_ACCOUNT,
        *,
        event_id: str | None = None,
        url: str | None = None,
        secret: str | None = None,
    ) -> dict[str, Any]:
        """Send an event to the endpoints of an account that want it, or to one URL."""
        who = self._session.may(Role.OPERATOR)
        event = Event(event_type, data, account) if event_id is None else Event(event_type, data, account, event_id)
        if url is not None and secret is None:
            await check_signed(self._store, self._own, account, url)
        endpoints, commit = await fan_out(self._store, self._own, event, url=url, secret=secret)
        after = {"type": event.type, "deliveries": len(endpoints)}
        commit.audits = [Audit(who, "WEBHOOK_EVENT_SENT", target=f"event:{event.id}", scope=account, after=after)]
        return event_result(event, endpoints, await self._store.apply(commit))

    @property
    def _own(self) -> WebhookSettings:
        return self._session.settings.of(WebhookSettings)

    async def _rows(self, statement: str, *args: Any) -> builtins.list[dict[str, Any]]:
        return await self._store.sql.feature_rows(FEATURE, statement, *args)

    async def _row(self, delivery_id: str) -> dict[str, Any]:
        rows = await self._rows("delivery", str(parse_id(delivery_id)))
        if not rows:
            raise DeliveryUnknown(
                f"there is no delivery {delivery_id}", hint="redrive webhooks deliveries lists the latest"
            )
        return rows[0]

    async def _endpoint(self, endpoint: str) -> dict[str, Any]:
        rows = await self._rows("endpoint", endpoint)
        if not rows:
            raise EndpointUnknown(f"there is no webhook endpoint {endpoint!r}", hint="redrive webhooks endpoints")
        return rows[0]

    async def _task(self, delivery_id: str) -> Task | None:
        wanted = parse_id(delivery_id)
        return (await self._store.get_many([wanted])).get(wanted)

    @staticmethod
    def _audit(who: str, what: str, endpoint: str, account: str, reason: str | None, task: UUID) -> Audit:
        return Audit(who, what, reason, task, target=f"webhook:{endpoint}", scope=account)


def _progress(task: Task | None) -> dict[str, Any]:
    """Returns how far the task of a delivery is; nothing where it is no longer kept."""
    if task is None:
        return {"task": None, "attempt_count": None, "max_attempts": None, "next_attempt_at": None, "error_code": None}
    return {
        "task": task.state.value,
        "attempt_count": task.attempt_count,
        "max_attempts": task.max_attempts,
        "next_attempt_at": task.next_attempt_at,
        "error_code": task.error_code,
    }


def _body(task: Task | None, attempts: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns what is sent, or was: of the task, or of the request that was its last."""
    if task is not None and task.payload is not None and task.created_at is not None:
        sent = decode(task.payload) if isinstance(task.payload, str) else task.payload
        return body_of(sent["event_type"], sent.get("at") or moment_of(task.created_at), sent.get("data")).decode()
    requests = [json.loads(one["request"]) for one in attempts if one["request"] is not None]
    return next((one["body"] for one in requests if "body" in one), None)


def _id(row: Mapping[str, Any]) -> UUID:
    return UUID(str(row["task_id"]))
