"""A row of numbers as a line of small bars."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
GAP = " "


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """Returns a bar for each value, or for the highest of several that stand beside each other; a gap for what is not
    known. The highest bar is the highest value."""
    size = -(-len(values) // width) if values else 1
    shown = [_highest(values[i : i + size]) for i in range(0, len(values), size)]
    top = max((value for value in shown if value is not None), default=0) or 1
    return "".join(GAP if value is None else _bar(value / top) for value in shown)


def _highest(part: Sequence[float | None]) -> float | None:
    return max((value for value in part if value is not None), default=None)


def _bar(share: float) -> str:
    return BARS[min(round(share * (len(BARS) - 1)), len(BARS) - 1)]
