"""Converts times to what SQLite holds: whole microseconds since 1970, UTC."""

from __future__ import annotations

from redrive.kernel.microseconds import to_datetime as to_datetime
from redrive.kernel.microseconds import to_micros as to_micros

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)
