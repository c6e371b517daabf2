"""Holds the attempt that the running code belongs to, so that an application's own loggers know their task."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from typing import Any, Protocol


class Logged(Protocol):
    """A running attempt, or a bulk call of many."""

    def log_fields(self) -> dict[str, Any]: ...


# Set for the whole of an attempt, and inherited by the tasks and threads that it starts.
CURRENT: ContextVar[Logged | None] = ContextVar("redrive_current", default=None)


class TaskFields(logging.Filter):
    """Adds task id, kind, queue, attempt, trace id and worker to records that are made inside a handler.

    For the handlers of an application that sets up its own logging; ``redrive work`` and ``up`` have it already. A
    field that the record carries by itself stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        current = CURRENT.get()
        if current is not None:
            for name, value in current.log_fields().items():
                if name not in vars(record):
                    setattr(record, name, value)
        return True
