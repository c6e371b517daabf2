"""What rows of webhooks look like outside: times are times on both stores, and each role sees what it may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from redrive.kernel.microseconds import to_datetime


def origin(url: str) -> str:
    """Returns a URL without what may be somebody's key: path and query."""
    parts = urlsplit(url)
    rest = parts.path.strip("/") or parts.query
    return f"{parts.scheme}://{parts.netloc}" + ("/…" if rest else "/")


def endpoint_view(row: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Returns an endpoint. ``whole``: with its URL in full and its description, which are for those who may act."""
    return {
        "id": row["id"],
        "account": row["account"],
        "url": row["url"] if whole else origin(row["url"]),
        "events": json.loads(row["events"]),
        "description": row["description"] if whole else None,
        "state": row["state"],
        "direct": bool(row["direct"]),
        "failing_since": to_datetime(row["failing_since"]),
        "disabled_at": to_datetime(row["disabled_at"]),
        "disabled_by": row["disabled_by"],
        "disabled_reason": row["disabled_reason"],
        "created_at": to_datetime(row["created_at"]),
    }


def delivery_view(row: Mapping[str, Any]) -> dict[str, Any]:
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
    }


def attempt_view(row: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Returns an attempt. ``whole``: with what was sent and answered."""
    found = {
        "attempt": row["attempt"],
        "replay": row["replay"],
        "at": to_datetime(row["at"]),
        "outcome": row["outcome"],
        "status": row["status"],
        "ms": row["ms"],
    }
    if whole:
        found |= {
            "request": None if row["request"] is None else _without_body(json.loads(row["request"])),
            "response": None if row["response"] is None else json.loads(row["response"]),
            "error": row["error"],
        }
    return found


def _without_body(request: dict[str, Any]) -> dict[str, Any]:
    """Returns a request without what it carried, which is the same for all attempts and shown once."""
    return {name: value for name, value in request.items() if name != "body"}
