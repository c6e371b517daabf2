"""Reads how long a server asks to be left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from math import isfinite

from redrive.kernel.evidence import chain, header

MAX_RETRY_AFTER = 86_400.0


def retry_after(error: BaseException, now: datetime | None = None) -> float | None:
    """Returns the seconds that the response in an exception asks for; None if it asks for nothing that can be waited
    for."""
    for one in chain(error):
        wish = _wish(partial(header, one), now)
        if wish is not None:
            return wish[0]
    return None


def retry_after_of(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Returns the seconds that the headers of a response ask for."""
    wish = _wish(headers.get, now)
    return None if wish is None else wish[0]


def _wish(get: Callable[[str], str | None], now: datetime | None) -> tuple[float | None] | None:
    """Returns what is asked for, in brackets; None if nothing is said."""
    wish = get("Retry-After-Ms")
    if wish is not None and (seconds := _seconds(wish)) is not None:
        return (_bounded(seconds / 1000),)
    wish = get("Retry-After")
    return None if wish is None else (parse_retry_after(wish, _moment(get("Date")) or now),)


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
