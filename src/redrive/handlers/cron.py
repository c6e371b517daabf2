"""Parses cron expressions with time zones."""

from __future__ import annotations

import difflib
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from redrive.errors import InvalidInput

# What each field takes, in the order they are written; the seconds may be left out.
CRON_FIELDS = {
    "second": "0-59",
    "minute": "0-59",
    "hour": "0-23",
    "day": "1-31, L (the month's last) or LW (its last from Monday to Friday)",
    "month": "1-12 or jan-dec",
    "weekday": "0-7 (0 and 7 are Sunday), sun-sat, mon#1 (the month's first Monday) or 5L (its last Friday)",
}
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EXAMPLE = (
    "five fields: minute hour day month weekday, e.g. '0 9 * * mon'; or six, with the second first: '*/10 * * * * *'"
)
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_BAD = (CronSimError, AttributeError, TypeError, ValueError)


def check_cron(expression: str, timezone: str) -> None:
    """Refuses a wrong expression or time zone where it is declared."""
    next_after(expression, timezone, _SOME_DAY)


def next_after(expression: str, timezone: str, moment: datetime) -> datetime:
    """Returns the first run strictly after a moment, in UTC. Around a change of the clocks, runs follow Debian cron: a
    run in the skipped hour happens right after it, and one in the repeated hour happens once."""
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise _unknown_zone(timezone) from None
    try:
        return next(CronSim(expression, moment.astimezone(zone))).astimezone(UTC)
    except _BAD:
        raise _refusal(expression) from None
    except StopIteration:
        raise InvalidInput(
            f"the cron expression {expression!r} never fires", hint="no year of the next fifty has such a day"
        ) from None


def _unknown_zone(timezone: object) -> InvalidInput:
    close = difflib.get_close_matches(timezone, available_timezones(), 1) if isinstance(timezone, str) else []
    guess = f"did you mean {close[0]}?" if close else "use a name like Europe/Berlin or UTC"
    return InvalidInput(f"{timezone!r} is not a known time zone", hint=guess)


def _refusal(expression: object) -> InvalidInput:
    """Returns what is wrong with an expression that cannot be used: which field, and what that one takes."""
    what = f"{expression!r} is not a cron expression"
    if not isinstance(expression, str):
        return InvalidInput(what, hint=_EXAMPLE)
    parts = expression.split()
    if expression.lower() in NICKNAMES:
        return InvalidInput(what, hint=f"write {NICKNAMES[expression.lower()]!r}")
    if len(parts) not in (5, 6):
        return InvalidInput(f"{what}: it has {len(parts)} field{'s' * (len(parts) != 1)}", hint=_EXAMPLE)
    names = list(CRON_FIELDS)[-len(parts) :]
    for index, (name, part) in enumerate(zip(names, parts, strict=True)):
        for term in part.split(","):
            if not _fits(term, index, len(parts)):
                takes = f"{name} takes {CRON_FIELDS[name]}; also *, lists 1,5, steps */5 and ranges 1-5, low to high"
                return InvalidInput(f"{what}: the {name} {term!r} is wrong", hint=takes)
    day, month = parts[-3:-1]
    return InvalidInput(f"{what}: month {month} has no day {day}", hint=_EXAMPLE)


def _fits(term: str, index: int, count: int) -> bool:
    """Returns whether one term of one field is right, whatever the others are."""
    alone = ["*"] * count
    alone[index] = term
    try:
        CronSim(" ".join(alone), _SOME_DAY)
    except _BAD:
        return False
    return True
