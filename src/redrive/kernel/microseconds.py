"""Times as whole microseconds since 1970, UTC: how SQLite holds them, and how statements of features say them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import overload

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_micros(when: datetime) -> int:
    return (when - EPOCH) // _MICROSECOND


@overload
def to_datetime(value: datetime | int) -> datetime: ...
@overload
def to_datetime(value: datetime | int | None) -> datetime | None: ...
def to_datetime(value: datetime | int | None) -> datetime | None:
    """Returns a time that a row has: microseconds in SQLite, a time already in PostgreSQL."""
    return EPOCH + timedelta(microseconds=value) if isinstance(value, int) else value
