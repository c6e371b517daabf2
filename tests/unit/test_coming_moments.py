"""Times to come, as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redrive.errors import InvalidInput
from redrive.ops.filters import parse_coming

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("08:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("8:30", datetime(2026, 3, 1, 8, 30, tzinfo=UTC)),
        ("03:00", datetime(2026, 3, 2, 3, tzinfo=UTC)),
        ("02:59", datetime(2026, 3, 2, 2, 59, tzinfo=UTC)),
        ("2026-03-05T08:00", datetime(2026, 3, 5, 8, tzinfo=UTC)),
        ("2026-03-05T08:00+01:00", datetime(2026, 3, 5, 7, tzinfo=UTC)),
    ],
)
def test_a_time_of_day_is_the_next_one(text: str, meant: datetime) -> None:
    assert parse_coming(text, "until", NOW) == meant


@pytest.mark.parametrize("text", ["", "8", "24:00", "08:60", "at eight"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidInput, match="until is no time"):
        parse_coming(text, "until", NOW)
