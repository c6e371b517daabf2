"""Bulk requests to Elasticsearch and OpenSearch: an event as lines of one, and what the answer says about each.

Versions are external and of the kind ``external_gte``: the server keeps the newest, by the order of events. The same
one again is written again, so that an event whose answer was lost, and a repaired document, end as done; only an older
one is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from redrive.kernel.classify import by_status
from redrive.kernel.retry_after import retry_after_of
from redrive.outbox.event import Event, Op
from redrive.outbox.sinks.search_server import Refused
from redrive.outbox.verdict import DETERMINISTIC, Done, Failed, Retry, Superseded, Verdict

# Where our own fields are in a document: keys and versions are scanned by them.
FIELD = "_redrive"
LONGEST_ID = 512  # bytes; the server would refuse the whole request for one that is longer
CONFLICT = "version_conflict_engine_exception"
NO_INDEX = "index_not_found_exception"
# Refused with a 4xx, though nothing is wrong with the event: an index that an operator closed, or made read-only.
_WAITS = {NO_INDEX, "index_closed_exception", "cluster_block_exception"}
# The same, of an alias that somebody pointed to several indexes.
_NO_WRITE_INDEX = "no write index"
# Only what is read, so that the answer to thousands of documents is small.
FILTER = "items.*.status,items.*.error.type,items.*.error.reason,items.*.error.caused_by.reason"


def encoded(event: Event) -> bytes | Failed:
    """Returns the lines of an event; a verdict, if it cannot be sent: one such event would spoil the whole request."""
    if len(event.key.encode("utf-8", "replace")) > LONGEST_ID:
        return _unfit(f"the key of an entity has at most {LONGEST_ID} bytes in a search server (entity type and id)")
    action: dict[str, Any] = {"_id": event.key, "version": event.order, "version_type": "external_gte"}
    if event.routing:
        action["routing"] = event.routing
    try:
        if event.op is Op.DELETE:
            return _line({"delete": action})
        return _line({"index": action}) + _line(_document(event))
    except (TypeError, ValueError, RecursionError) as error:
        return _unfit(f"the document cannot be written as JSON: {error}")


def _document(event: Event) -> dict[str, Any]:
    if not isinstance(event.payload, Mapping):
        raise TypeError(f"it is no object, but {type(event.payload).__name__}")
    if FIELD in event.payload:
        raise ValueError(f"it has a field {FIELD}, where redrive keeps key and version")
    return {**event.payload, FIELD: {"key": event.key, "version": event.version}}


def _line(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _unfit(message: str) -> Failed:
    return Failed(DETERMINISTIC, message)


def verdicts(answer: Mapping[str, Any], count: int) -> list[Verdict]:
    """Returns what a bulk answer says, in the order of the request. An answer with fewer items than were sent says
    nothing that could be trusted."""
    items = answer.get("items")
    if not isinstance(items, Sequence) or len(items) != count:
        found = len(items) if isinstance(items, Sequence) else "no"
        raise ConnectionError(f"the answer to a bulk request of {count} documents has {found} items")
    return [_verdict(item) for item in items]


def _verdict(item: Mapping[str, Any]) -> Verdict:
    [(op, said)] = item.items()
    status, error = int(said.get("status", 0)), said.get("error")
    if 200 <= status < 300:
        return Done()
    if error is None and op == "delete" and status == 404:
        return Done()
    kind, message = _told(error, status)
    if status == 409 and kind == CONFLICT:
        return Superseded()
    if kind in _WAITS or _NO_WRITE_INDEX in message:
        return Retry("unavailable", message)
    # Who is not let in (401, 403) is so by the server: the event is not wrong.
    if 400 <= status < 500 and status not in (401, 403, 408, 409, 429):
        return _unfit(message)
    return Retry(by_status(status).reason, message)


def _told(error: Any, status: int) -> tuple[str, str]:
    if not isinstance(error, Mapping):
        return "", str(error or f"HTTP {status}")
    kind, cause = str(error.get("type") or ""), error.get("caused_by")
    parts = [kind, error.get("reason"), cause.get("reason") if isinstance(cause, Mapping) else None]
    return kind, ": ".join(str(part) for part in parts if part)


def all_of(error: Refused) -> Retry:
    """Returns the verdict on every event of a request that was refused as a whole. That says nothing about any of them,
    so they wait: a changed password, or a missing index, does not fail what an operator can mend."""
    reason = "unavailable" if error.kind in _WAITS else by_status(error.status_code).reason
    return Retry(reason, str(error), retry_after_of(error.headers, datetime.now(UTC)), whole=True)
