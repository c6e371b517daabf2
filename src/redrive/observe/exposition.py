"""Makes a page of metrics in the format that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from redrive.observe import text_format
from redrive.observe.metrics import Metric, Scope
from redrive.observe.samples import Samples, Value


def render(
    table: Sequence[Metric], processes: Mapping[str, Samples], fleet: Samples, accept: str = ""
) -> tuple[bytes, str]:
    """Returns a page of metrics and its content type. ``processes``: their samples by the name of the worker.

    Everybody gets the text format, which Prometheus takes as readily as the one that it asks for first; OpenMetrics
    only who takes nothing else."""
    if "openmetrics" in accept and "text/plain" not in accept and "*/*" not in accept:
        from redrive.observe import open_metrics  # its library takes longer to load than everything else here

        return open_metrics.write([(metric, list(rows_of(metric, processes, fleet))) for metric in table], accept)
    return text_format.write((metric, rows_of(metric, processes, fleet)) for metric in table), text_format.CONTENT_TYPE


def rows_of(
    metric: Metric, processes: Mapping[str, Samples], fleet: Samples
) -> Iterator[tuple[tuple[str, ...], Value]]:
    """Returns the samples of a metric, with the values of all its labels."""
    if metric.scope is Scope.FLEET:
        yield from fleet.get(metric.name, {}).items()
        return
    for worker, samples in processes.items():
        for labels, value in samples.get(metric.name, {}).items():
            yield (worker, *labels), value
