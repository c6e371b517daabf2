"""The kind of a delivery: one event to one endpoint, a request for each attempt."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from redrive.handlers.context import Context
from redrive.kernel.backoff import Backoff
from redrive.kernel.outcome import Fail, Retry
from redrive.webhooks.kinds import CLIENT, QUEUE, kinds
from redrive.webhooks.reaction import GONE

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
