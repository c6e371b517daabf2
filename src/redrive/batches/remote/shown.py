"""Remote batches and their items as documents and as CSV, for HTTP and the command line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import Any

from redrive.batches.remote.model import BatchItem, RemoteBatch
from redrive.batches.remote.service import Progress

_SHOWN = (
    "name",
    "key",
    "meta",
    "scope",
    "provider",
    "account",
    "price",
    "items",
    "webhook_url",
    "reason",
    "round",
    "frozen",
    "captured",
    "released",
    "created_at",
    "created_by",
    "dispatched_at",
    "settled_at",
    "cancelled_at",
    "cancelled_by",
)
ITEM_FIELDS = (
    "n",
    "state",
    "payload",
    "task_id",
    "job",
    "progress",
    "poll_count",
    "last_poll_at",
    "started_at",
    "ended_at",
    "result",
    "error_code",
    "error_message",
    "failure_type",
    "late",
)
# A spreadsheet takes a text that begins like this for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def remote_document(batch: RemoteBatch) -> dict[str, Any]:
    return {"id": str(batch.id), "state": batch.state.value, **{name: getattr(batch, name) for name in _SHOWN}}


def progress_document(found: Progress) -> dict[str, Any]:
    failures = {"by_type": found.by_type, "by_code": found.by_code}
    return {**remote_document(found.batch), "counts": dict(found.counts.states), "failures": failures}


def item_document(item: BatchItem) -> dict[str, Any]:
    document = {name: getattr(item, name) for name in ITEM_FIELDS}
    return {**document, "task_id": None if item.task_id is None else str(item.task_id)}


def items_csv(items: Iterable[BatchItem]) -> str:
    """Returns items as CSV, with a line of names; payload and result are JSON."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(ITEM_FIELDS)
    for item in items:
        writer.writerow([_cell(name, getattr(item, name)) for name in ITEM_FIELDS])
    return text.getvalue()


def _cell(name: str, value: Any) -> Any:
    if name in ("payload", "result"):
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value.isoformat() if hasattr(value, "isoformat") else value
