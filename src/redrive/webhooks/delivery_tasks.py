"""The tasks of webhooks: an event, which becomes deliveries when it runs, and a delivery, one event to one endpoint;
and what lands with the moves of a delivery: its row, since when its endpoint fails, and an endpoint that is gone.

They have a queue of their own: a receiver that is slow holds up nothing else."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from redrive.errors import InvalidInput
from redrive.handlers.context import Context
from redrive.handlers.kinds import Kinds
from redrive.kernel.applied import Applied
from redrive.kernel.audit import Audit
from redrive.kernel.backoff import Backoff
from redrive.kernel.commit import Commit
from redrive.kernel.feature import Belongs
from redrive.kernel.machine import Event as Move
from redrive.kernel.machine import Transition
from redrive.kernel.outcome import Fail, Retry
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.kernel.task import NewTask, State
from redrive.webhooks.address_guard import check_url
from redrive.webhooks.events import DEFAULT_ACCOUNT, FEATURE, Event, direct_endpoint, endpoints_wanting
from redrive.webhooks.settings import WebhookSettings
from redrive.webhooks.signing import check_secret, encrypt

if TYPE_CHECKING:
    from redrive.kernel.ports.store import Store

QUEUE = "webhooks"
# The client loads its parts one by one, as they are first used.
CLIENT = ("httpx", "httpcore", "h11", "anyio", "anyio._backends._asyncio", "encodings.idna")
kinds = Kinds()
GONE = "WEBHOOK_ENDPOINT_GONE"
_ENDED = {State.COMPLETED: "completed", State.FAILED: "failed", State.CANCELLED: "cancelled"}
# Moves that say something about the endpoint. A lease that ran out, or an operator, does not.
_JUDGED = {Move.COMPLETE: True, Move.RETRY: False, Move.FAIL: False}
REFUSED, NO_CLIENT = "WEBHOOK_ADDRESS_REFUSED", "WEBHOOK_NO_CLIENT"
FIRST_WAIT_S = 0.5
SLOW = Backoff(15.0, 86_400.0)
_TYPES = {"timeout": "timeout", "dns": "network", "connect": "network", "tls": "network", "protocol": "network"}


@kinds.task(
    "WEBHOOK_DELIVERY",
    queue=QUEUE,
    max_attempts=4,
    public=("endpoint_id", "event_id", "event_type"),
    preload=("redrive.webhooks.delivery_attempt", *CLIENT),
)
async def deliver(
    ctx: Context,
    endpoint_id: str,
    event_id: str,
    event_type: str,
    data: Any,
    at: str | None = None,
    forced: bool = False,
) -> dict[str, Any]:
    """Sends one event to one endpoint."""
    if find_spec("httpx") is None:
        raise Fail(NO_CLIENT, "httpx is not installed: pip install '/path/to/checkout[http]', then redeliver")
    from redrive.webhooks.delivery_attempt import DeliveryAttempt

    found = await DeliveryAttempt.load(ctx, endpoint_id, forced)
    body = body_of(event_type, at or moment_of(ctx.task.created_at), data)
    answer = await found.send(event_id, int(time.time()), body)
    if answer.delivered:
        return {"status": answer.status, "ms": answer.ms}
    cause = f"webhook endpoint {endpoint_id}: {answer.outcome}"
    if answer.outcome == "gone":
        raise Fail(GONE, "it answered 410 Gone: the endpoint is disabled", failure_type="param_error", cause=cause)
    if answer.outcome == "refused":
        raise Fail(REFUSED, answer.error or "", failure_type="param_error", cause=cause)
    wait = max(wait_after(ctx.attempt, found.settings.retries, random.random()), answer.retry_after or 0.0)  # noqa: S311
    kind = _TYPES.get(answer.outcome, "unknown")
    raise Retry(answer.error or answer.outcome, after=wait, failure_type=kind, cause=cause)


def wait_after(attempt: int, quick: int, jitter: float) -> float:
    """Returns the seconds until the next attempt: 0.5, 1.5, 3.5 … as often as retries are set, then the core's backoff,
    up to a day."""
    return FIRST_WAIT_S * (2**attempt - 1) if attempt <= quick else SLOW.delay(attempt, jitter)


def body_of(event_type: str, at: str, data: Any) -> bytes:
    """Returns what is sent, the same bytes for each attempt."""
    document = {"type": event_type, "timestamp": at, "data": data}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def moment_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def delivery(
    event: Event,
    endpoint: str,
    attempts: int,
    *,
    round: int = 0,
    trace_id: str | None = None,
    forced: bool = False,
) -> NewTask:
    """Returns the task that carries an event to an endpoint; asked for twice, it is enqueued once. ``forced``: also
    where the endpoint is disabled."""
    return deliver.options(
        max_attempts=attempts,
        scope=event.account,
        group=f"webhook:{endpoint}",
        trace_id=trace_id,
        idempotency_key=f"redrive:webhook:{event.id}:{endpoint}:{round}",
        feature=FEATURE,
        facts={"endpoint": endpoint, "event": event.id, "type": event.type},
    ).new(
        endpoint_id=endpoint,
        event_id=event.id,
        event_type=event.type,
        data=event.data,
        at=event.at,
        forced=forced,
    )


def deliveries(
    event: Event, endpoints: Iterable[str], attempts: int, *, round: int = 0, trace_id: str | None = None
) -> Commit:
    """Returns one delivery for each endpoint, to be applied together or not at all."""
    made = [(one, delivery(event, one, attempts, round=round, trace_id=trace_id)) for one in endpoints]
    return Commit(
        enqueues=[task for _, task in made], rows=[made_rows(event, made, round)] if made else [], all_or_none=True
    )


def made_rows(event: Event, made: Iterable[tuple[str, NewTask]], round: int) -> Rows:
    """Returns the rows by which deliveries are found."""
    shared = {"account": event.account, "event": event.id, "type": event.type, "round": round}
    return Rows(FEATURE, "deliveries_made", tuple({"task": str(t.id), "endpoint": one, **shared} for one, t in made))


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
        endpoints = endpoints_wanting(event, await store.sql.feature_rows(FEATURE, "targets", event.account))
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


def event_result(event: Event, endpoints: Sequence[str], applied: Applied) -> dict[str, Any]:
    """Returns what became of an event, for whoever sent it. ``new``: False where it had been enqueued before."""
    found = [
        {"delivery": str(answer.id), "endpoint": endpoint, "new": answer.created}
        for endpoint, answer in zip(endpoints, applied.enqueued, strict=True)
    ]
    return {"event": event.id, "type": event.type, "account": event.account, "deliveries": found}


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


def react(transition: Transition, landed: Landed) -> Effects | None:
    """Runs inside the transaction of the move."""
    endpoint = landed.facts.get("endpoint")
    if endpoint is None:  # erased
        return None
    moved = {"task": str(landed.task_id), "state": _ENDED.get(landed.state, "pending")}
    rows = [Rows("webhooks", "delivery_moved", (moved,))]
    ok = _JUDGED.get(transition.event)
    gone = transition.failure is not None and transition.failure.code == GONE
    if ok is not None:
        rows.append(Rows("webhooks", "endpoint_settled", ({"endpoint": endpoint, "ok": ok, "gone": gone},)))
    return Effects(rows=rows, audits=[_given_up(endpoint, landed)] if gone else [])


def _given_up(endpoint: str, landed: Landed) -> Audit:
    return Audit(
        "redrive",
        "WEBHOOK_ENDPOINT_DISABLED",
        "it answered 410 Gone",
        landed.task_id,
        target=f"webhook:{endpoint}",
        scope=landed.scope,
    )


def belongs(facts: Mapping[str, Any]) -> Belongs | None:
    """Returns the endpoint that a delivery goes to."""
    endpoint = facts.get("endpoint")
    return None if endpoint is None else Belongs(f"webhook endpoint {endpoint}", f"/webhooks/endpoints/{endpoint}")
