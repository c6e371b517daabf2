"""Events, and which endpoints want one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redrive.errors import InvalidInput
from redrive.ids import new_id
from redrive.kernel.task import check_text

FEATURE = "webhooks"
DEFAULT_ACCOUNT = "default"
UNSIGNED = "WEBHOOK_NO_SECRET"
PING = "webhook.ping"
MOST_ENDPOINTS = 1000  # of one account
MOST_PATTERNS = 50
_TYPE = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_PATTERN = re.compile(r"\*|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*(\.\*)?")
_ID = re.compile(r"[A-Za-z0-9_:-]{1,160}")


@dataclass(slots=True, frozen=True)
class Event:
    """Something that happened and that an account's endpoints are told. ``id`` stays the same however often and to
    whomever it is sent; ``at`` is when it happened, where that was before its deliveries were made."""

    type: str
    data: Any
    account: str = DEFAULT_ACCOUNT
    id: str = field(default_factory=lambda: f"evt_{new_id().hex}")
    at: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.type, str) or len(self.type) > 120 or not _TYPE.fullmatch(self.type):
            raise InvalidInput(
                f"{self.type!r} is no type of an event",
                hint="letters, digits, _ and - in parts with dots between them, like invoice.paid",
            )
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise InvalidInput(f"{self.id!r} is no id of an event", hint="1-160 letters, digits, _ : and -")
        check_account(self.account)


def check_account(account: object) -> str:
    """Returns the name of an account; refuses what cannot be one."""
    return check_text(account, "account") or DEFAULT_ACCOUNT


def check_events(patterns: Sequence[str]) -> list[str]:
    """Returns which events an endpoint wants: types, ``batch.*`` for all that begin so, ``*`` for all."""
    found = list(dict.fromkeys(patterns)) or ["*"]
    if len(found) > MOST_PATTERNS:
        raise InvalidInput(f"an endpoint names at most {MOST_PATTERNS} events", hint="use patterns like batch.*")
    for one in found:
        if not isinstance(one, str) or len(one) > 120 or not _PATTERN.fullmatch(one):
            raise InvalidInput(f"{one!r} names no events", hint="give a type like batch.completed, batch.* or *")
    return found


def wants(patterns: Iterable[str], event_type: str) -> bool:
    """Returns whether one of the patterns is about events of this type."""
    return any(one in ("*", event_type) or (one.endswith(".*") and event_type.startswith(one[:-1])) for one in patterns)


def direct_endpoint(account: str, url: str, secret: str | None) -> dict[str, Any]:
    """Returns the endpoint of a call that names its URL itself: the same for the same account, URL and secret."""
    named = json.dumps([account, url, secret and hashlib.sha256(secret.encode()).hexdigest()])
    return {"id": f"ep_{hashlib.sha256(named.encode()).hexdigest()[:20]}", "account": account, "url": url}


def endpoints_wanting(event: Event, targets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the endpoints, of those of an account, that want an event."""
    if len(targets) > MOST_ENDPOINTS:
        raise InvalidInput(f"the account {event.account!r} has more than {MOST_ENDPOINTS:,} endpoints")
    return [row["id"] for row in targets if wants(json.loads(row["events"]), event.type)]
