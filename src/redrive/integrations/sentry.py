"""Sends the exceptions of failed attempts to Sentry, with the task as their context.

A hook like any other, switched on by ``REDRIVE_SENTRY``; the application calls ``sentry_sdk.init``. What leaves the
house is what viewers may see: types, frames and lines of code, codes, labels, the words of a message that stand in
code, and payload fields that were declared public. Local variables and other words of messages stay here. Failures
that have one cause here are one issue there, and each is in the trace of its task.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable
from typing import Any

import sentry_sdk

from redrive.handlers.events import TaskEvent
from redrive.kernel.summary import type_and_words

_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
logger = logging.getLogger("redrive.hooks")


def warn_if_deaf() -> None:
    """Says so when nobody has called ``sentry_sdk.init``: nothing would be sent."""
    if not sentry_sdk.is_initialized():
        logger.warning(
            "REDRIVE_SENTRY is on, and sentry_sdk.init() was not called: nothing is sent → call it where the "
            "application is made",
            extra={"event": "sentry.not_initialised"},
        )


def capture(event: TaskEvent) -> None:
    """Sends the failure that an event tells of."""
    with sentry_sdk.new_scope() as scope:
        scope.set_context("task", _task(event))
        for name in ("kind", "queue", "error_code", "failure_type", "trace_id"):
            if (value := getattr(event, name)) is not None:
                scope.set_tag(f"redrive.{name}", value)
        scope.set_level("warning" if event.name == "retried" else "error")
        scope.fingerprint = ["redrive", event.error_fingerprint or event.kind]
        scope.add_event_processor(_only_words_of_code(event))
        if event.exception is not None:
            scope.capture_exception(event.exception)
        else:  # from a process of its own, or without an exception: a time limit, a lost worker
            scope.capture_event({"exception": {"values": [_described(event)]}})


def _task(event: TaskEvent) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "id": str(event.task_id),
        "kind": event.kind,
        "queue": event.queue,
        "attempt": event.attempt,
        "max_attempts": event.max_attempts,
        "trace_id": event.trace_id,
        "worker": event.worker_id,
        "code": event.error_code,
        "reason": event.error_reason,
        "cause": event.error_fingerprint,
        "retry_in": event.retry_in,
        "dead_reason": event.dead_reason,
        "payload": event.public,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _described(event: TaskEvent) -> dict[str, Any]:
    kind, words = type_and_words(event.error_summary)
    return {"type": kind or str(event.error_reason), "value": words, "mechanism": {"type": "redrive", "handled": True}}


def _trace(event: TaskEvent) -> dict[str, Any]:
    """Returns the trace that an event belongs to: the task's, as tools for traces know it; else one for each task."""
    known = (event.trace_id or "").lower()
    found = known if _TRACE_ID.fullmatch(known) else event.task_id.hex
    return {"trace_id": found, "span_id": secrets.token_hex(8)}


def _only_words_of_code(event: TaskEvent) -> Callable[[Any, Any], Any]:
    _, message = type_and_words(event.error_summary)

    def clean(sent: Any, _: Any) -> Any:
        values = (sent.get("exception") or {}).get("values") or []
        for place, value in enumerate(values, 1):
            # The last one is what the handler raised; of those that it came from only the types are known.
            value["value"] = message if place == len(values) else ""
            for frame in (value.get("stacktrace") or {}).get("frames") or []:
                frame.pop("vars", None)
        # Sentry's own is that of the thread of hooks: all failures of a worker would be one trace.
        sent.setdefault("contexts", {})["trace"] = _trace(event)
        (sent.get("extra") or {}).pop("sys.argv", None)  # may have a URL with a password
        return sent

    return clean
