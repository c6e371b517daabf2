"""Counts that features make in their handlers and duties. They belong to the process that serves the worker's metrics:
what is counted in a handler's own process goes up to its worker, and from there as all samples do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from redrive.errors import InvalidInput
from redrive.observe.metrics import Metric, Scope, Type
from redrive.observe.samples import Labels, Samples, put

logger = logging.getLogger("redrive.metrics")
MOST_LABELS = 500  # sets of label values of one metric
Up = Callable[[str, float, Labels], None]


class Counted:
    """What features have counted in this process since it was started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: Samples = {}
        self._up: Up | None = None

    def hand_up(self, up: Up) -> None:
        """From now on counts are given to ``up``: this process serves no metrics."""
        self._up = up

    def add(self, name: str, n: float, labels: Labels) -> None:
        if self._up is not None:
            self._up(name, n, labels)
            return
        with self._lock:
            known = self._samples.get(name, {})
            if labels not in known and len(known) >= MOST_LABELS:
                logger.warning("%s has more than %d sets of labels", name, MOST_LABELS, extra={"event": "metrics.many"})
                return
            put(self._samples, name, n, *labels)

    def samples(self) -> Samples:
        with self._lock:
            return {name: dict(values) for name, values in self._samples.items()}


COUNTED = Counted()


def count(metric: Metric, *labels: str, n: float = 1) -> None:
    """Counts something, by the values of the metric's labels: ``count(SENT, "mail")``. From any thread, and from
    handlers with ``isolation="process"``."""
    if metric.type is not Type.COUNTER or metric.scope is not Scope.PROCESS:
        raise InvalidInput(f"{metric.name} is not a counter of a process", hint="Metric(…, Type.COUNTER, …)")
    if len(labels) != len(metric.labels):
        raise InvalidInput(f"{metric.name} has the labels {metric.labels}, not {len(labels)} of them")
    if n < 0:
        raise InvalidInput(f"{metric.name} is a counter: it never falls")
    COUNTED.add(metric.name, float(n), tuple(map(str, labels)))
