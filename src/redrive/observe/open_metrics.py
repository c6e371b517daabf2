"""Writes samples with the encoders of Prometheus' client library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from redrive.kernel.spread import Spread
from redrive.observe.metrics import Metric, Type
from redrive.observe.samples import Value

Rows = Sequence[tuple[Sequence[str], Value]]


class _Look(Collector):
    """What there is at one moment, as families of the library."""

    def __init__(self, families: Iterable[tuple[Metric, Rows]]) -> None:
        self._families = families

    def describe(self) -> Iterable[Family]:
        return ()  # else the registry would collect to find out

    def collect(self) -> Iterator[Family]:
        return (_family(metric, rows) for metric, rows in self._families if rows)


def write(families: Iterable[tuple[Metric, Rows]], accept: str) -> tuple[bytes, str]:
    """Returns the page of these metrics in the format that ``accept`` asks for, and its content type."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Look(families))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def _family(metric: Metric, rows: Rows) -> Family:
    if metric.type is Type.HISTOGRAM:
        return _histogram(metric, rows)
    make = CounterMetricFamily if metric.type is Type.COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = make(metric.name, metric.help, labels=metric.all_labels)
    for labels, value in rows:
        assert not isinstance(value, Spread)
        family.add_metric(labels, value)
    return family


def _histogram(metric: Metric, rows: Rows) -> Family:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.all_labels)
    ends = [*(str(float(bound)) for bound in metric.bounds), "+Inf"]
    for labels, value in rows:
        assert isinstance(value, Spread)
        family.add_metric(labels, list(zip(ends, accumulate(value.counts), strict=True)), value.total)
    return family
