"""Reads times that Python's calendar does not have: PostgreSQL's goes on for 300,000 years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

# PostgreSQL sends microseconds since this.
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


async def bring_to_the_ends(connection: Any) -> None:
    """Makes this connection return the first or last time there is for one that is beyond."""
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", format="tuple", encoder=_encoded, decoder=_decoded
    )


def _encoded(at: datetime) -> tuple[int]:
    return ((at - _EPOCH) // _MICROSECOND,)


def _decoded(sent: tuple[int]) -> datetime:
    (microseconds,) = sent
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST
