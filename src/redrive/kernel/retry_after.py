"""Reads how long a server asks to be left alone."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite

from redrive.kernel.evidence import chain, header

MAX_RETRY_AFTER = 86_400.0


def retry_after(error: BaseException, now: datetime | None = None) -> float | None:
    """Returns the seconds that the response in an exception asks for; None if it asks for nothing that can be waited
    for."""
    for one in chain(error):
        wish = header(one, "Retry-After-Ms")
        if wish is not None and (seconds := _seconds(wish)) is not None:
            return _bounded(seconds / 1000)
        wish = header(one, "Retry-After")
        if wish is not None:
            return parse_retry_after(wish, _moment(header(one, "Date")) or now)
    return None


def parse_retry_after(value: str, now: datetime | None) -> float | None:
    """Returns seconds, from a number or an HTTP date seen from ``now``; None for nonsense, zero and what is past."""
    seconds = _seconds(value)
    if seconds is None:
        when = _moment(value)
        if when is None or now is None:
            return None
        seconds = (when - now).total_seconds()
    return _bounded(seconds)


def _bounded(seconds: float) -> float | None:
    return min(seconds, MAX_RETRY_AFTER) if seconds > 0 else None


def _seconds(value: str) -> float | None:
    try:
        found = float(value)
    except ValueError:
        return None
    return found if isfinite(found) else None


def _moment(value: str | None) -> datetime | None:
    """Parses an HTTP date; without a zone it is in UTC."""
    try:
        found = parsedate_to_datetime(value or "")
    except (ValueError, TypeError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found
