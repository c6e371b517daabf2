"""Events that an application can listen to: what became of a task in this worker's hands, told after its commit."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from redrive.errors import ConfigError

EVENTS = {
    "completed": "the task is done",
    "retried": "an attempt failed, and another one is planned",
    "failed": "the task failed for good",
    "dead": "the same moment: a dead letter was written",
    "snoozed": "the handler wants to be called again later",
    "released": "the task was handed back without using up an attempt",
    "cancelled": "the task ended as cancelled while it ran",
    "lost": "an outcome was refused, because the lease is somebody else's",
    "recovered": "this worker took the task back from one whose lease ran out",
}


@dataclass(slots=True, frozen=True)
class TaskEvent:
    """What a hook is told. ``error_…`` and ``exception`` are those of a failed attempt; the exception is there where
    the handler ran in this process. ``retry_in``: seconds until the next attempt; ``dead_reason``: why there is
    none."""

    name: str
    at: datetime
    task_id: UUID
    kind: str
    queue: str
    attempt: int
    max_attempts: int
    worker_id: str
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    duration_ms: float | None = None
    reason: str | None = None
    retry_in: float | None = None
    dead_reason: str | None = None
    error_code: str | None = None
    error_reason: str | None = None
    failure_type: str | None = None
    error_message: str | None = field(default=None, repr=False)
    error_stack: str | None = field(default=None, repr=False)
    error_fingerprint: str | None = None
    error_summary: Any = field(default=None, repr=False)  # of that, what may be shown to everybody
    public: Any = None  # those fields of the payload that were declared public
    exception: BaseException | None = field(default=None, repr=False, compare=False)


Hook = Callable[[TaskEvent], Any]


def check_event(name: object) -> str:
    """Refuses the name of an event that there is not."""
    if not isinstance(name, str):
        raise TypeError(f"an event is named by a str, not {name!r}; events are: {', '.join(EVENTS)}")
    if name in EVENTS:
        return name
    close = difflib.get_close_matches(name, EVENTS, 1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    raise ConfigError(f"there is no event {name!r}", hint=f"{guess}events are: {', '.join(EVENTS)}")


def check_takes_event(name: str, function: Callable[..., Any]) -> None:
    """Refuses a hook that cannot be called with one event: each would be lost, with a warning in some worker's log."""
    import inspect  # takes a while, and most applications have no hooks

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # something built in that does not tell
        return
    try:
        signature.bind(None)
    except TypeError:
        called = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f"the hook {called}{signature} of {name!r} cannot be called with one event",
            hint=f"it takes one parameter: def {getattr(function, '__name__', 'hook')}(event: TaskEvent)",
        ) from None
