"""Cron expressions with time zones."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from redrive.errors import InvalidInput


def check_cron(expression: str, timezone: str) -> None:
    """Refuse nonsense when it is declared, not at three in the morning."""
    next_after(expression, timezone, datetime(2024, 1, 1, tzinfo=UTC))


def next_after(expression: str, timezone: str, moment: datetime) -> datetime:
    """The first run strictly after a moment, in UTC. Around a change of the clocks, runs follow Debian cron:
    a run in the skipped hour happens right after it, and one in the repeated hour happens once."""
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise InvalidInput(
            f"{timezone!r} is not a known time zone", hint="use a name like Europe/Berlin or UTC"
        ) from None
    try:
        return next(CronSim(expression, moment.astimezone(zone))).astimezone(UTC)
    except (CronSimError, AttributeError, TypeError):
        raise InvalidInput(
            f"{expression!r} is not a cron expression",
            hint="five fields: minute hour day month weekday, e.g. '0 9 * * mon'",
        ) from None
    except StopIteration:
        raise InvalidInput(f"the cron expression {expression!r} never fires") from None
