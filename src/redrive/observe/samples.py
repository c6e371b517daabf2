"""Samples: what metrics say at one moment, by the name of the metric and the values of its labels.

They add up: those of several processes, and of processes that have ended. As JSON they go from one process to another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from redrive.kernel.series import Spread

Labels = tuple[str, ...]
Value = float | Spread
Samples = dict[str, dict[Labels, Value]]


def put(samples: Samples, name: str, value: Value, *labels: str) -> None:
    """Adds a value; to the one that is there already, where several go under one set of labels."""
    found = samples.setdefault(name, {})
    found[labels] = value if labels not in found else added(found[labels], value)


def added(mine: Value, more: Value) -> Value:
    if isinstance(mine, Spread) and isinstance(more, Spread):
        return mine.plus(more)
    if isinstance(mine, Spread) or isinstance(more, Spread):
        raise ValueError("a number cannot be added to what is spread over buckets")
    return mine + more


def add(mine: Samples, more: Samples, which: Callable[[str], bool] = lambda name: True) -> None:
    """Adds samples of the metrics that ``which`` is true of."""
    for name, found in more.items():
        if which(name):
            for labels, value in found.items():
                put(mine, name, value, *labels)


def changed(now: Samples, before: Samples) -> Samples:
    """Returns those samples that are not what they were."""
    found: Samples = {}
    for name, values in now.items():
        old = before.get(name, {})
        new = {labels: value for labels, value in values.items() if _plain(value) != _plain(old.get(labels))}
        if new:
            found[name] = new
    return found


def as_json(samples: Samples) -> dict[str, list[Any]]:
    return {
        name: [[list(labels), _plain(value)] for labels, value in values.items()] for name, values in samples.items()
    }


def from_json(found: dict[str, list[Any]], bounds_of: Callable[[str], tuple[float, ...] | None]) -> Samples:
    """Returns the samples of such a document. ``bounds_of`` a metric's buckets; None: leave it out, it is not known
    here."""
    return {
        name: {tuple(labels): _value(value, bounds) for labels, value in rows}
        for name, rows in found.items()
        if (bounds := bounds_of(name)) is not None
    }


def _plain(value: Value | None) -> Any:
    return [value.counts, value.total] if isinstance(value, Spread) else value


def _value(value: Any, bounds: tuple[float, ...]) -> Value:
    return Spread(bounds, value[0], value[1]) if isinstance(value, list) else float(value)


def total(samples: Iterable[Value]) -> float:
    return sum(value for value in samples if not isinstance(value, Spread))
