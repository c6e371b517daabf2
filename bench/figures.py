"""Arithmetic on measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed (nearest rank)."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    rank = max(-(-len(ordered) * share // 1), 1)
    return ordered[min(int(rank), len(ordered)) - 1]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> float:
    """From the lowest to the highest, as a share of the median."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def rate(stamps: Sequence[int]) -> float:
    """Tasks per second between the first and the last of these times (nanoseconds, sorted)."""
    if len(stamps) < 2 or stamps[-1] == stamps[0]:
        return 0.0
    return (len(stamps) - 1) / (stamps[-1] - stamps[0]) * 1e9


def windows(stamps: Sequence[int], seconds: float, start: int, stop: int) -> list[float]:
    """Tasks per second in each whole window from ``start`` to ``stop`` (nanoseconds)."""
    width = int(seconds * 1e9)
    counts = [0] * max((stop - start) // width, 0)
    for stamp in stamps:
        index = (stamp - start) // width
        if 0 <= index < len(counts):
            counts[index] += 1
    return [count / seconds for count in counts]


def trend(rates: Sequence[float]) -> float:
    """The least-squares line's change from the first window to the last, as a share of the mean: -0.1 is 10 % down."""
    if len(rates) < 2 or not sum(rates):
        return 0.0
    slope = statistics.linear_regression(range(len(rates)), rates).slope
    return slope * (len(rates) - 1) / statistics.fmean(rates)


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs
