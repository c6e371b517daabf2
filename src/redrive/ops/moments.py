"""Times as people write them: so long ago, or exactly."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from redrive.errors import InvalidInput

_AGO = re.compile(r"(\d{1,6})\s*(s|m|min|h|d|w)")
_TIME_OF_DAY = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)", re.ASCII)
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_LONGEST = timedelta(days=36_500)


def parse_moment(text: str, name: str, now: datetime) -> datetime:
    """Returns the time that ``90s``, ``15m``, ``1h``, ``7d``, ``2w`` (ago) or an ISO time means; without a zone it is
    one of UTC. Times ago are those of whole minutes: who asks again soon means the same."""
    given = text.strip()
    if ago := _AGO.fullmatch(given):
        span = int(ago[1]) * _UNITS[ago[2]]
        if span <= _LONGEST:
            found = (now - span).replace(microsecond=0)
            return found if ago[2] == "s" else found.replace(second=0)
    try:
        found = datetime.fromisoformat(given)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "15m, 1h, 7d (ago), or 2026-03-01T08:30 (UTC), 2026-03-01T08:30+01:00"
        raise InvalidInput(f"{name} is no time: {given[:50]!r}", hint=hint) from None


def parse_coming(text: str, name: str, now: datetime) -> datetime:
    """Returns the moment to come that ``08:00``, the next one, or an ISO time means; without a zone it is of UTC."""
    given = text.strip()
    if found := _TIME_OF_DAY.fullmatch(given):
        hour, minute = int(found[1]), int(found[2])
        today = now.astimezone(UTC).replace(hour=hour, minute=minute, second=0, microsecond=0)
        return today if today > now else today + timedelta(days=1)
    try:
        moment = datetime.fromisoformat(given)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        hint = "08:00 (UTC), 2026-03-01T08:00 (UTC), 2026-03-01T08:00+01:00"
        raise InvalidInput(f"{name} is no time: {given[:50]!r}", hint=hint) from None


def parse_span(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    """Returns the first moment of a stretch of time, and the first after it; None is open."""
    now = datetime.now(UTC)
    begin = None if since is None else parse_moment(since, "since", now)
    end = None if until is None else parse_moment(until, "until", now)
    if begin is not None and end is not None and begin >= end:
        raise InvalidInput("since is not before until", hint="since is the earlier one; until does not belong to it")
    return begin, end
