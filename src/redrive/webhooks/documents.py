"""What is shown of endpoints and deliveries: times are times on both stores, and each role sees what it may. Of secrets
only since when and until when they are valid is shown; the text of a new one this once, to who made it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from redrive.errors import NotFound
from redrive.kernel.microseconds import to_datetime
from redrive.kernel.task import Task
from redrive.ops.operator.declared import Closed, Open
from redrive.webhooks.address_guard import origin


class EndpointUnknown(NotFound):
    code = "WEBHOOK_ENDPOINT_UNKNOWN"


def _time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%F %T}"


def _short(text: str, most: int) -> str:
    """Returns a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _health(one: EndpointView, _: datetime) -> str:
    return "failing" if one.state == "enabled" and one.failing_since else one.state


@dataclass(slots=True, frozen=True)
class EndpointView:
    """An endpoint of a customer."""

    id: Annotated[str, Open(column="endpoint")]
    account: Annotated[str, Open(column="account")]
    state: Annotated[str, Open("enabled or disabled.", column="state", cell=_health)]
    events: Annotated[list[str], Open(column="events")]
    url: Annotated[str, Open("In full for operators; for others without its path.", column="url")]
    description: Annotated[str | None, Closed("For operators.")]
    direct: Annotated[bool, Open("Whether it is that of a call which named a URL.")]
    failing_since: Annotated[datetime | None, Open("Since when it has only failed.")]
    disabled_at: Annotated[datetime | None, Open()]
    disabled_by: Annotated[str | None, Open()]
    disabled_reason: Annotated[str | None, Open()]
    created_at: Annotated[datetime, Open()]


@dataclass(slots=True, frozen=True)
class SecretView:
    """Since when a secret is valid, and until when."""

    id: Annotated[str, Open()]
    created_at: Annotated[datetime, Open()]
    expires_at: Annotated[datetime | None, Open()]


@dataclass(slots=True, frozen=True)
class EndpointSigned(EndpointView):
    """An endpoint with what it is signed for with."""

    signed_by: Annotated[str | None, Open("Whose secret: endpoint, account or settings; null: there is none.")]
    secrets: Annotated[list[SecretView], Open()]

    @property
    def sentence(self) -> str:
        lines = [
            f"endpoint {self.id} of {self.account}: {self.state}",
            f"  url      {self.url}",
            f"  events   {', '.join(self.events)}",
        ]
        if self.description:
            lines.append(f"  about    {self.description}")
        if self.state == "disabled":
            why = f": {self.disabled_reason}" if self.disabled_reason else ""
            lines.append(f"  disabled {_time(self.disabled_at)} by {self.disabled_by}{why}")
        if self.failing_since:
            lines.append(f"  fails    since {_time(self.failing_since)}, without a success")
        return "\n".join([*lines, f"  signed   {self._signed}"])

    @property
    def _signed(self) -> str:
        if self.signed_by is None:
            return "by nothing: there is no secret (redrive webhooks rotate)"
        if self.signed_by == "settings":
            return "with ENTERPRISE_WEBHOOK_SECRET"
        whose = "its own secret" if self.signed_by == "endpoint" else "the secret of its account"
        ending = [_time(one.expires_at) for one in self.secrets if one.expires_at]
        return f"with {whose}" + (f", and until {', '.join(ending)} with the one before" if ending else "")


@dataclass(slots=True, frozen=True)
class EndpointAdded(EndpointSigned):
    """A new endpoint."""

    secret: Annotated[str | None, Closed("Shown this once; null where it shares that of its account.")] = None

    @property
    def wanted(self) -> str:
        return ", ".join(self.events)


@dataclass(slots=True, frozen=True)
class Rotated:
    """A new secret of an endpoint, or of an account."""

    account: Annotated[str, Open()]
    secret: Annotated[str, Closed("Shown this once.")]
    overlap_hours: Annotated[float, Open("For so long those before are valid.")]
    endpoint: Annotated[str | None, Open()] = None


@dataclass(slots=True, frozen=True)
class EncryptedSecrets:
    secrets: Annotated[int, Open("All that the store has.")]
    encrypted: Annotated[int, Open("Those that were not, or by an older key.")]


@dataclass(slots=True, frozen=True)
class Removed:
    removed: Annotated[str, Open()]


_OF_ENDPOINT = ("id", "account", "description", "state", "disabled_by", "disabled_reason")
_TIMES_OF_ENDPOINT = ("failing_since", "disabled_at", "created_at")


def endpoint_fields(row: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Returns the fields of an endpoint. ``whole``: its URL in full, which may hold somebody's key."""
    return {
        **{name: row[name] for name in _OF_ENDPOINT},
        **{name: to_datetime(row[name]) for name in _TIMES_OF_ENDPOINT},
        "url": row["url"] if whole else origin(row["url"]),
        "events": json.loads(row["events"]),
        "direct": bool(row["direct"]),
    }


def _standing(one: DeliveryView, _: datetime) -> str:
    return one.task or one.state


def _tries(one: DeliveryView, _: datetime) -> str:
    return "" if one.attempt_count is None else f"{one.attempt_count}/{one.max_attempts}"


def _made(one: DeliveryView, _: datetime) -> str:
    return _time(one.created_at)


@dataclass(slots=True, frozen=True)
class DeliveryView:
    """One event to one endpoint."""

    id: Annotated[str, Open("That of its task.", column="delivery")]
    created_at: Annotated[datetime, Open(column="made", cell=_made)]
    type: Annotated[str, Open("Of the event.", column="type")]
    endpoint: Annotated[str, Open(column="endpoint")]
    state: Annotated[str, Open("pending, completed, failed or cancelled.", column="state", cell=_standing)]
    attempt_count: Annotated[int | None, Open(column="attempts", cell=_tries, number=True)]
    max_attempts: Annotated[int | None, Open()]
    account: Annotated[str, Open()]
    event: Annotated[str, Open("The id of the event.")]
    round: Annotated[int, Open("How many times it was sent before, after it had arrived.")]
    task: Annotated[str | None, Open("The state of its task, while that is kept.")]
    next_attempt_at: Annotated[datetime | None, Open()]
    error_code: Annotated[str | None, Open()]
    moved_at: Annotated[datetime, Open()]


@dataclass(slots=True, frozen=True)
class EndpointDetail(EndpointSigned):
    """An endpoint with its latest deliveries."""

    deliveries: Annotated[list[DeliveryView], Open("The latest ten.")] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AttemptView:
    """One request, and what was answered."""

    attempt: Annotated[int, Open()]
    replay: Annotated[int, Open("How many times it had been sent again by then.")]
    at: Annotated[datetime, Open()]
    outcome: Annotated[str, Open()]
    status: Annotated[int | None, Open("Of HTTP.")]
    ms: Annotated[float, Open()]
    request: Annotated[dict[str, Any] | None, Closed("URL, address and headers; secrets are covered.")]
    response: Annotated[dict[str, Any] | None, Closed("Headers, and the body as far as it is kept.")]
    error: Annotated[str | None, Closed()]

    @property
    def lines(self) -> Iterator[str]:
        answer = f"HTTP {self.status}" if self.status is not None else self.outcome
        again = f", after {self.replay} redeliveries" if self.replay else ""
        yield f"attempt {self.attempt}{again}: {answer} in {self.ms:g} ms, {_time(self.at)}"
        if self.error:
            yield f"  {_short(self.error, 300)}"
        for name, value in ((self.request or {}).get("headers") or {}).items():
            yield f"  > {name}: {value}"
        if self.response is None:
            return
        for name, value in self.response["headers"].items():
            yield f"  < {name}: {value}"
        if self.response["body"]:
            yield f"  < {_short(self.response['body'], 1000)}{' …' if self.response['cut'] else ''}"


@dataclass(slots=True, frozen=True)
class DeliveryDetail(DeliveryView):
    """A delivery with each request and answer."""

    attempts: Annotated[list[AttemptView], Open()]
    body: Annotated[str | None, Closed("What is sent, or was.")]

    @property
    def sentence(self) -> str:
        lines = [
            f"delivery {self.id}: {self.task or self.state}",
            f"  event    {self.event} ({self.type}) to {self.endpoint} of {self.account}",
        ]
        if self.next_attempt_at and self.state == "pending":
            lines.append(f"  next     {_time(self.next_attempt_at)}")
        for attempt in self.attempts:
            lines.extend(attempt.lines)
        return "\n".join(lines if self.body is None else [*lines, "body", f"  {_short(self.body, 2000)}"])


@dataclass(slots=True, frozen=True)
class SentTo:
    delivery: Annotated[str, Open()]
    endpoint: Annotated[str, Open()]
    new: Annotated[bool, Open("False where it had been enqueued before.")]


@dataclass(slots=True, frozen=True)
class Sent:
    """What became of an event."""

    event: Annotated[str, Open()]
    type: Annotated[str, Open()]
    account: Annotated[str, Open()]
    deliveries: Annotated[list[SentTo], Open()]

    @property
    def sentence(self) -> str:
        number = len(self.deliveries)
        lines = [f"event {self.event}: {number} {'delivery' if number == 1 else 'deliveries'}"]
        if not number:
            account = self.account
            lines.append(f"no enabled endpoint of {account} wants it: redrive webhooks endpoints --account {account}")
        lines += [
            f"  {one.delivery} to {one.endpoint}{'' if one.new else ' (known before)'}" for one in self.deliveries
        ]
        return "\n".join(lines)


_OF_TASK = ("attempt_count", "max_attempts", "next_attempt_at", "error_code")


def delivery_fields(row: Mapping[str, Any], task: Task | None) -> dict[str, Any]:
    """Returns the fields of a delivery, with how far its task is, while that is kept."""
    return {
        "id": str(row["task_id"]),
        "endpoint": row["endpoint_id"],
        "account": row["account"],
        "event": row["event_id"],
        "type": row["event_type"],
        "round": row["round"],
        "state": row["state"],
        "created_at": to_datetime(row["created_at"]),
        "moved_at": to_datetime(row["moved_at"]),
        "task": None if task is None else task.state.value,
        **{name: getattr(task, name, None) for name in _OF_TASK},
    }


def attempt_view(row: Mapping[str, Any]) -> AttemptView:
    """Returns an attempt, without what it carried: that is the same for all, and shown once."""
    request = None if row["request"] is None else json.loads(row["request"])
    return AttemptView(
        row["attempt"],
        row["replay"],
        to_datetime(row["at"]),
        row["outcome"],
        row["status"],
        row["ms"],
        None if request is None else {name: value for name, value in request.items() if name != "body"},
        None if row["response"] is None else json.loads(row["response"]),
        row["error"],
    )
