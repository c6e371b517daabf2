"""Spans of time: one reader for commands, settings and code."""

from __future__ import annotations

import pytest

from redrive.errors import ConfigError
from redrive.kernel.wording import seconds_of
from redrive.settings import Settings, Unfit


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("5m", 300), (" 8 h ", 28_800), ("1.5d", 129_600)])
def test_what_is_a_span(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["8", "0", "", "h", "-1h", "8x", "1h30m", "٣h", "1e3s", "9" * 30 + "d"])
def test_a_number_without_its_unit_is_none(text: str) -> None:
    assert seconds_of(text) is None


def test_settings_read_spans_alike() -> None:
    read = Settings(alerts={"thresholds": {"a": {"failed_for": "10m", "oldest_age": 60}}}).alerts.limits.of("a")
    assert (read.failed_for, read.oldest_age) == (600, 60)
    for wrong in ({"thresholds": {"a": {"failed_for": "10"}}}, {"late": {"query": "SELECT 1", "for": "5"}}):
        with pytest.raises((ConfigError, Unfit), match="no span of time; write 30s, 5m, 8h or 7d"):
            Settings(alerts=wrong)
