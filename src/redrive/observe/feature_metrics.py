"""Metrics that features bring: named in the table of their own, read with those of redrive, and counted in their
handlers and duties. Counts belong to the process that serves the worker's metrics: what is counted in a handler's own
process goes up to its worker, and from there as all samples do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redrive import features
from redrive.errors import ConfigError, InvalidInput
from redrive.observe.metrics import TABLE, Metric, Scope, Type
from redrive.observe.samples import Labels, Samples, add, put

if TYPE_CHECKING:
    from redrive.kernel.feature import Feature
    from redrive.kernel.ports.store import Store

logger = logging.getLogger("redrive.metrics")
MOST_LABELS = 500  # sets of label values of one metric
Up = Callable[[str, float, Labels], None]


@dataclass(slots=True, frozen=True)
class FeatureMetrics:
    """What ``Feature.metrics`` names. ``fleet`` gets the store and the settings, and returns samples of the fleet's
    metrics, by one statement; it is asked every two seconds at most. ``process`` gets the samples of a worker, and
    returns those that follow from them, by the labels ``queue`` and ``kind`` of its own kinds. ``hear`` gets the
    samples of worker processes in their supervisor, before that says whether it is ready: what only they know."""

    metrics: Sequence[Metric]
    fleet: Callable[[Store, Any], Awaitable[Samples]] | None = None
    process: Callable[[Samples], Samples] | None = None
    hear: Callable[[Samples], None] | None = None


def metrics_of(app_features: Iterable[Feature]) -> list[tuple[str, FeatureMetrics]]:
    """Returns the metrics of these features, by their names. A metric is named after its feature: whoever sees it knows
    whom to ask, and none is named like another."""
    found = []
    for feature in app_features:
        if feature.metrics is None:
            continue
        own = features.load(feature.metrics)
        if not isinstance(own, FeatureMetrics):
            raise ConfigError(f"{feature.metrics} is {type(own).__name__}, not FeatureMetrics")
        for metric in own.metrics:
            if not metric.name.removeprefix("redrive_").startswith(f"{feature.name}_"):
                raise ConfigError(
                    f"the metric {metric.name!r} of feature {feature.name!r} is not named after it",
                    hint=f"{feature.name}_{metric.name}",
                )
        found.append((feature.name, own))
    return found


def table_of(app_features: Iterable[Feature]) -> tuple[Metric, ...]:
    """Returns all metrics that an application serves."""
    return (*TABLE, *(metric for _, own in metrics_of(app_features) for metric in own.metrics))


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


def extend(samples: Samples, of_features: Iterable[FeatureMetrics]) -> Samples:
    """Returns a worker's samples with those that features make of them, and what features have counted here."""
    listed, counted = list(of_features), COUNTED.samples()
    more = [(own, own.process(samples) if own.process is not None else {}) for own in listed]
    for own, found in more:
        names = {metric.name for metric in own.metrics if metric.scope is Scope.PROCESS}
        # From the start, so that the first one is a rise: without labels it is known what there will be.
        plain: Samples = {one.name: {(): 0.0} for one in own.metrics if one.type is Type.COUNTER and not one.labels}
        for one in (found, counted, plain):
            add(samples, one, names.__contains__)
    return samples
