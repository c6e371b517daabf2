"""The same moment is as long ago on every page, and in every text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from redrive.console.text import relative
from redrive.kernel.wording import span

NOW = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        (timedelta(seconds=1), "now"),
        (timedelta(seconds=90), "90 s ago"),
        (timedelta(hours=4, minutes=56), "5 h ago"),
        (timedelta(seconds=1 - 86_400), "in 24 h"),
        (timedelta(days=800), "2 y ago"),
    ],
)
def test_a_moment_as_people_say_it(ago: timedelta, told: str) -> None:
    assert relative(NOW - ago, NOW) == told


@pytest.mark.parametrize("minutes", [3, 119, 296, 47 * 60 + 40, 10_000])
def test_pages_and_findings_round_alike(minutes: int) -> None:
    long = timedelta(minutes=minutes)
    assert relative(NOW - long, NOW) == f"{span(long)} ago"
