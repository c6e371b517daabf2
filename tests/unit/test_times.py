"""Times as people write and read them: spans, moments to come, how long ago, how long history is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from redrive import App, Context
from redrive.console.text import relative
from redrive.errors import ConfigError, InvalidInput
from redrive.kernel.wording import seconds_of
from redrive.ops.filters import parse_coming
from redrive.settings import Settings, Unfit


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("5m", 300), (" 8 h ", 28_800), ("1.5d", 129_600)])
def test_what_is_a_span(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["8", "", "-1h", "8x", "1h30m", "٣h", "9" * 30 + "d"])
def test_a_number_without_its_unit_is_none(text: str) -> None:
    assert seconds_of(text) is None


def test_settings_read_spans_alike() -> None:
    read = Settings(alerts={"thresholds": {"a": {"failed_for": "10m", "oldest_age": 60}}}).alerts.limits.of("a")
    assert (read.failed_for, read.oldest_age) == (600, 60)
    for wrong in ({"thresholds": {"a": {"failed_for": "10"}}}, {"late": {"query": "SELECT 1", "for": "5"}}):
        with pytest.raises((ConfigError, Unfit), match="no span of time; write 30s, 5m, 8h or 7d"):
            Settings(alerts=wrong)


NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("08:00", datetime(2026, 3, 1, 8, tzinfo=UTC)),
        ("03:00", datetime(2026, 3, 2, 3, tzinfo=UTC)),
        ("2026-03-05T08:00+01:00", datetime(2026, 3, 5, 7, tzinfo=UTC)),
    ],
)
def test_a_time_of_day_is_the_next_one(text: str, meant: datetime) -> None:
    assert parse_coming(text, "until", NOW) == meant


@pytest.mark.parametrize("text", ["", "8", "24:00", "08:60", "at eight"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidInput, match="until is no time"):
        parse_coming(text, "until", NOW)


@pytest.mark.parametrize(
    ("ago", "told"),
    [
        (timedelta(seconds=1), "now"),
        (timedelta(hours=4, minutes=56), "5 h ago"),
        (timedelta(seconds=1 - 86_400), "in 24 h"),
        (timedelta(days=800), "2 y ago"),
    ],
)
def test_a_moment_as_people_say_it(ago: timedelta, told: str) -> None:
    assert relative(NOW - ago, NOW) == told


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("1h", 3600.0), ("15m", 900.0), ("90 s", 90.0), ("1.5d", 129_600.0), (60, 60.0), (None, 0.0), (0, 0.0)],
)
def test_how_long_history_is_kept(given: Any, seconds: float) -> None:
    app = App("sqlite:///:memory:")

    @app.task("A", history=given)
    def a(ctx: Context) -> None: ...

    @app.task("B")
    def b(ctx: Context) -> None: ...

    assert a.handler.policy.history == seconds
    assert b.handler.policy.history is None


@pytest.mark.parametrize("given", ["60", "1 week", -1, True, float("nan"), "99999999d"])
def test_a_history_that_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="history of A must be"):
        App("sqlite:///:memory:").task("A", history=given)
