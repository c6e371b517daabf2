"""``redrive stats --history``: how things went, in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.handlers.kinds import HEALTH_CHECK
from redrive.kernel.wording import sparkline
from tests.cli.conftest import Said


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 1, 2, 7], "▁▂▃█"),
        ([None, 0, None, 5], " ▁ █"),
        ([0, 0], "▁▁"),
        ([None], " "),
        ([], ""),
        ([1, None, 8, 0, None, None], "▂█ "),
    ],
)
def test_bars(values: list[float | None], line: str) -> None:
    assert sparkline(values, width=4 if len(values) < 6 else 3) == line


def test_history_in_a_terminal(here: Path, redrive: Callable[..., Said]) -> None:
    url = ("--url", f"sqlite:///{here}/went.db")
    assert redrive("migrate", *url).code == 0
    assert "nothing was looked at" in redrive("stats", "--history", "1h", *url).out
    assert redrive("enqueue", HEALTH_CHECK, *url).code == 0
    assert redrive("work", "--stop-when-empty", *url).code == 0
    said = redrive("stats", "--history", "24h", *url).out
    assert "96 steps of 15 min" in said and "completed" in said and "pick-up p99" in said and "█" in said
    found = redrive("stats", "--history", "1h", "--queue", "default", "--json", *url).json
    assert found["step_seconds"] == 60 and found["queue"] == "default" and len(found["completed"]) == 60
    wrong = redrive("stats", "--history", "2h", *url)
    assert wrong.code == 2 and "1h, 24h, 7d, 30d, 1y" in wrong.err
    alone = redrive("stats", "--kind", "A", *url)
    assert alone.code == 2 and "--history" in alone.err
