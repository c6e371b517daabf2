"""Decides how long an attempt may run."""

from __future__ import annotations

from redrive.handlers.registry import Handler
from redrive.worker.config import WorkerConfig


class TimeLimits:
    """Finds the time limit of an attempt, in seconds: as the task says, else its kind, else the worker."""

    def __init__(self, config: WorkerConfig) -> None:
        default, own = config.settings.timeout_ms / 1000, config.options.timeout
        self._handlers = config.registry.handlers
        self._default = (default if own is None else own) or None

    def of_kind(self, kind: str, own: float | None) -> float | None:
        """Returns the limit of a task of this kind; ``own`` is what the task says."""
        return self.of(self._handlers.get(kind), own)

    def of(self, handler: Handler | None, own: float | None) -> float | None:
        """Returns the limit in seconds; None: as long as it takes."""
        if own is not None:
            return own
        if handler is not None and handler.timeout is not None:
            return handler.timeout
        return self._default
