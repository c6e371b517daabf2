"""The geometry of charts: numbers in, coordinates out. The templates draw them as SVG, without any style of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from redrive.console.text import short_duration

WIDTH, HEIGHT = 640, 180
LEFT, RIGHT, TOP, BOTTOM = 54, 8, 8, 22
TICKS = 4


def spark(values: Sequence[float], width: int = 96, height: int = 20) -> str:
    """Returns the points of a small line; a flat one at the bottom when there is nothing to show."""
    if len(values) < 2:
        return f"0,{height - 1} {width},{height - 1}"
    top = max(max(values), 1e-9)
    step = width / (len(values) - 1)
    return " ".join(f"{i * step:.1f},{height - 1 - value / top * (height - 2):.1f}" for i, value in enumerate(values))


@dataclass(slots=True, frozen=True)
class Series:
    """One line or one colour of a stack: ``name`` is also its class. None is a gap."""

    name: str
    label: str
    values: Sequence[float | None]


class Tick(NamedTuple):
    """A mark on an axis."""

    place: float
    label: str


class Moment(NamedTuple):
    """What stands at one moment, each value as text."""

    at: datetime
    values: tuple[str, ...]


@dataclass(slots=True, frozen=True)
class Chart:
    """``lines``: the class and the points of each stretch without a gap; ``bars``: the class of each colour of a stack,
    and all its bars as one shape; ``first`` and ``step``: when the first step begins, and how long one is, in seconds.
    """

    title: str
    unit: str
    series: Sequence[Series]
    lines: Sequence[tuple[str, str]]
    bars: Sequence[tuple[str, str]]
    moments: Sequence[Moment]
    first: float
    step: float
    across: Sequence[Tick]  # marks of the values
    along: Sequence[Tick]  # marks of the times
    empty: bool


def nice_top(most: float) -> float:
    """Returns the end of an axis: a round number that all values fit below."""
    if most <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(most))
    return float(next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= most * 0.999))


# Ends of an axis of seconds from a minute on: their quarters are short to write.
_LONG_TIMES = (60, 120, 240, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400, 172_800)


def nice_time(most: float) -> float:
    """The same for seconds: 2 min rather than 100 s."""
    if most <= 50:
        return nice_top(most)
    return float(next((end for end in _LONG_TIMES if end >= most * 0.999), nice_top(most / 86_400) * 86_400))


def draw(
    title: str,
    unit: str,
    moments: Sequence[datetime],
    series: Sequence[Series],
    show: object,
    *,
    stacked: bool = False,
    times: bool = False,
) -> Chart:
    """Returns a chart of these series over these moments. ``show`` turns a value into text; ``times``: the values are
    seconds."""
    write = show if callable(show) else str
    known = [value for one in series for value in one.values if value is not None]
    most = max((sum(one.values[i] or 0 for one in series) for i in range(len(moments))), default=0) if stacked else 0
    highest = most if stacked else max(known, default=0)
    top = nice_time(highest) if times else nice_top(highest)
    mark = short_duration if times else write
    span = WIDTH - LEFT - RIGHT
    width = span / max(len(moments), 1)
    xs = [LEFT + width * (i + 0.5) for i in range(len(moments))]
    return Chart(
        title,
        unit,
        series,
        [] if stacked else [(one.name, points) for one in series for points in _paths(xs, one.values, top)],
        _bars(series, xs, width, top) if stacked else [],
        [
            Moment(moment, tuple("–" if one.values[i] is None else write(one.values[i]) for one in series))
            for i, moment in enumerate(moments)
        ],
        moments[0].timestamp() if moments else 0.0,
        (moments[1] - moments[0]).total_seconds() if len(moments) > 1 else 0.0,
        [Tick(_y(top * i / TICKS, top), mark(top * i / TICKS)) for i in range(TICKS + 1)],
        _times(moments, xs),
        not any(known),
    )


def _y(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM), 1)


def _paths(xs: Sequence[float], values: Sequence[float | None], top: float) -> list[str]:
    """Returns stretches of a line; where a value is missing the line is interrupted."""
    stretches: list[list[str]] = [[]]
    for x, value in zip(xs, values, strict=True):
        if value is None:
            stretches.append([])
        else:
            stretches[-1].append(f"{x:.1f},{_y(value, top)}")
    return [" ".join(stretch) for stretch in stretches if stretch]


def _bars(series: Sequence[Series], xs: Sequence[float], width: float, top: float) -> list[tuple[str, str]]:
    below = [0.0] * len(xs)
    found = []
    for one in series:
        shapes = []
        for i, x in enumerate(xs):
            value = one.values[i] or 0
            if value:
                y, base = _y(below[i] + value, top), _y(below[i], top)
                height = round(max(base - y, 0.8), 1)
                shapes.append(f"M{x - width * 0.42:.1f} {y}h{width * 0.84:.1f}v{height}h-{width * 0.84:.1f}z")
                below[i] += value
        found.append((one.name, "".join(shapes)))
    return found


def _times(moments: Sequence[datetime], xs: Sequence[float]) -> list[Tick]:
    if not moments:
        return []
    days = (moments[-1] - moments[0]).total_seconds() > 2 * 86_400
    form = "%d %b" if days else "%H:%M"
    step = max(len(moments) // 6, 1)
    return [
        Tick(round(xs[i], 1), moments[i].astimezone(UTC).strftime(form)) for i in range(step // 2, len(moments), step)
    ]
