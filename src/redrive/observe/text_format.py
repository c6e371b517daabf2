"""Writes samples in Prometheus' text format.

The client library writes the same bytes (a test compares them) at ten times the price: it looks at every name and every
label of every line again. A worker with a hundred busy kinds has five thousand lines, and is asked for them every few
seconds while it has tasks to run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

from redrive.kernel.spread import Spread
from redrive.observe.metrics import Metric, Type
from redrive.observe.samples import Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SMALL = 1_000_000  # from here on numbers are written with an exponent
Rows = Iterable[tuple[Sequence[str], Value]]  # values of all labels, and the value


def write(families: Iterable[tuple[Metric, Rows]]) -> bytes:
    """Returns the page of these metrics; those without rows are left out."""
    parts: list[str] = []
    for metric, rows in families:
        lines = list(_histogram(metric, rows) if metric.type is Type.HISTOGRAM else _plain(metric, rows))
        if lines:
            told = metric.help.replace("\\", r"\\").replace("\n", r"\n")
            parts.append(f"# HELP {metric.name} {told}\n# TYPE {metric.name} {metric.type}\n")
            parts += lines
    return "".join(parts).encode()


def _plain(metric: Metric, rows: Rows) -> Iterator[str]:
    order = _order(metric.all_labels)
    for values, value in rows:
        assert not isinstance(value, Spread)
        labels = ",".join([_label(name, values[place]) for name, place in order])
        yield f"{metric.name}{{{labels}}} {number(value)}\n" if labels else f"{metric.name} {number(value)}\n"


def _histogram(metric: Metric, rows: Rows) -> Iterator[str]:
    # Labels stand in the order of their names, and ``le`` is one of them.
    order = _order(metric.all_labels)
    ends = [*(str(float(bound)) for bound in metric.bounds), "+Inf"]
    for values, value in rows:
        assert isinstance(value, Spread)
        before = "".join([_label(name, values[place]) + "," for name, place in order if name < "le"])
        after = "".join(["," + _label(name, values[place]) for name, place in order if name > "le"])
        counts = list(accumulate(value.counts))
        for end, n in zip(ends, counts, strict=True):
            yield f'{metric.name}_bucket{{{before}le="{end}"{after}}} {number(n)}\n'
        labels = (before + after.removeprefix(",")).rstrip(",")
        braces = f"{{{labels}}}" if labels else ""
        yield f"{metric.name}_count{braces} {number(counts[-1])}\n{metric.name}_sum{braces} {number(value.total)}\n"


def _order(labels: Sequence[str]) -> list[tuple[str, int]]:
    return sorted((name, place) for place, name in enumerate(labels))


@lru_cache(maxsize=10_000)
def _label(name: str, value: str) -> str:
    told = value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f'{name}="{told}"'


def number(value: float) -> str:
    """Returns a number as Go writes it."""
    if 0 <= value < SMALL:
        return str(float(value))
    from prometheus_client.utils import floatToGoString

    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
