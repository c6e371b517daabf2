"""Charts: axes that end at numbers that are short to write, when they begin, where their lines are interrupted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.console.charts import TICKS, Series, draw, nice_time, nice_top
from redrive.console.text import short_duration


@pytest.mark.parametrize(("most", "top"), [(0, 1), (7, 10), (101, 200), (350, 500), (0.03, 0.05)])
def test_an_axis_ends_above_its_values(most: float, top: float) -> None:
    assert nice_top(most) == pytest.approx(top)


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (0.02, ["0", "5 ms", "10 ms", "15 ms", "20 ms"]),
        (9.3, ["0", "2.5 s", "5 s", "7.5 s", "10 s"]),
        (62, ["0", "30 s", "1 min", "1.5 min", "2 min"]),
        (3000, ["0", "15 min", "30 min", "45 min", "1 h"]),
        (80_000, ["0", "6 h", "12 h", "18 h", "1 d"]),
        (900_000, ["0", "5 d", "10 d", "15 d", "20 d"]),
    ],
)
def test_an_axis_of_times_is_marked_in_one_unit_each(most: float, labels: list[str]) -> None:
    top = nice_time(most)
    assert [short_duration(top * i / TICKS) for i in range(TICKS + 1)] == labels


def test_a_chart_says_when_it_begins_and_interrupts_its_lines() -> None:
    moments = [datetime(2026, 3, 1, 12, n, tzinfo=UTC) for n in range(4)]
    drawn = draw("Depth", "tasks", moments, [Series("c1", "queued", [1, 2, None, 4])], str)
    assert (drawn.first, drawn.step) == (moments[0].timestamp(), 60)
    assert [(name, points.count(",")) for name, points in drawn.lines] == [("c1", 2), ("c1", 1)]
    assert [one.values for one in drawn.moments] == [("1",), ("2",), ("–",), ("4",)]
    stacked = draw("Throughput", "tasks", moments, [Series("c1", "a", [1, 0, 2, 0])], str, stacked=True)
    [(name, path)] = stacked.bars
    assert (name, path.count("M"), stacked.lines) == ("c1", 2, [])
