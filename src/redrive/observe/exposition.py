"""Makes a page of metrics in the format that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from redrive.observe import text_format
from redrive.observe.metrics import Metric, Scope
from redrive.observe.samples import Samples, Value


class Told(NamedTuple):
    """What a page is about: the samples of ``processes`` by the name of the worker, all of which serve one
    ``connection``, and those of the fleets by their connections."""

    connection: str
    processes: Mapping[str, Samples]
    fleets: Mapping[str, Samples] = MappingProxyType({})


def render(table: Sequence[Metric], told: Told, accept: str = "") -> tuple[bytes, str]:
    """Returns a page of metrics and its content type.

    Everybody gets the text format, which Prometheus takes as readily as the one that it asks for first; OpenMetrics
    only who takes nothing else."""
    if "openmetrics" in accept and "text/plain" not in accept and "*/*" not in accept:
        from redrive.observe import open_metrics  # its library takes longer to load than everything else here

        return open_metrics.write([(metric, list(rows_of(metric, told))) for metric in table], accept)
    return text_format.write((metric, rows_of(metric, told)) for metric in table), text_format.CONTENT_TYPE


def rows_of(metric: Metric, told: Told) -> Iterator[tuple[tuple[str, ...], Value]]:
    """Returns the samples of a metric, with the values of all its labels."""
    if metric.scope is Scope.FLEET:
        for connection, samples in told.fleets.items():
            for labels, value in samples.get(metric.name, {}).items():
                yield (connection, *labels), value
        return
    for worker, samples in told.processes.items():
        for labels, value in samples.get(metric.name, {}).items():
            yield (told.connection, worker, *labels), value
