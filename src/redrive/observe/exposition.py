"""Writes samples as Prometheus reads them, with the client library's own encoders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from redrive.kernel.spread import Spread
from redrive.observe.metrics import Metric, Scope, Type
from redrive.observe.samples import Samples, Value


class _Look(Collector):
    """What there is at one moment, as families of the client library."""

    def __init__(self, table: Sequence[Metric], processes: Mapping[str, Samples], fleet: Samples) -> None:
        self._table = table
        self._processes = processes
        self._fleet = fleet

    def describe(self) -> Iterable[Family]:
        return ()  # else the registry would collect to find out

    def collect(self) -> Iterator[Family]:
        for metric in self._table:
            rows = list(self._rows(metric))
            if rows:
                yield _family(metric, rows)

    def _rows(self, metric: Metric) -> Iterator[tuple[list[str], Value]]:
        if metric.scope is Scope.FLEET:
            for labels, value in self._fleet.get(metric.name, {}).items():
                yield [*labels], value
            return
        for worker, samples in self._processes.items():
            for labels, value in samples.get(metric.name, {}).items():
                yield [worker, *labels], value


def render(
    table: Sequence[Metric], processes: Mapping[str, Samples], fleet: Samples, accept: str = ""
) -> tuple[bytes, str]:
    """Returns a page of metrics and its content type, in the format that ``accept`` asks for. ``processes``: their
    samples by the name of the worker."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Look(table, processes, fleet))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _family(metric: Metric, rows: Iterable[tuple[list[str], Value]]) -> Family:
    if metric.type is Type.HISTOGRAM:
        return _histogram(metric, rows)
    make = CounterMetricFamily if metric.type is Type.COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make(metric.name, metric.help, labels=metric.all_labels)
    for labels, value in rows:
        assert not isinstance(value, Spread)
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, rows: Iterable[tuple[list[str], Value]]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.all_labels)
    ends = [*(str(float(bound)) for bound in metric.bounds), "+Inf"]
    for labels, value in rows:
        assert isinstance(value, Spread)
        family.add_metric(labels, list(zip(ends, accumulate(value.counts), strict=True)), value.total)
    return family
