"""Converts times to what SQLite holds: whole microseconds since 1970, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def to_micros(when: datetime) -> int:
    return (when - EPOCH) // _MICROSECOND


def to_datetime(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)
