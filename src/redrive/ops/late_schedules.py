"""Finds schedules whose run is late, for doctor: without a live worker nobody fires them, and no rule is evaluated."""

from __future__ import annotations

from datetime import timedelta

from redrive.kernel.alerts.rules import SCHEDULE_MISSED
from redrive.kernel.diagnosis import Finding, Level
from redrive.kernel.ports.store import Overview, Store
from redrive.kernel.reads import ScheduleRow
from redrive.kernel.wording import span

LATE = timedelta(minutes=1)
MOST_NAMED = 5
_THEN = {
    "coalesce": "it runs once for all that it missed",
    "skip": "what it missed is left out",
    "all": "it runs for each that it missed",
}


async def late_schedules(store: Store, overview: Overview) -> list[Finding]:
    """Returns the schedules that are late, those that wait longest first; paused ones are not."""
    now, due = await store.due_schedules()
    late = [row for row in due if now - row.next_at > LATE and overview.pause_of("schedule", row.name) is None]
    return [
        Finding(
            Level.WARNING,
            SCHEDULE_MISSED.name,
            f"schedule {row.name} ({row.kind}) is overdue for {span(now - row.next_at)}: no worker fires it",
            f"redrive work --app module:app; {_then(row)}",
            ("schedule", row.name),
        )
        for row in late[:MOST_NAMED]
    ]


def _then(row: ScheduleRow) -> str:
    return f"then {_THEN.get(row.missed, 'redrive schedules says how it goes on')}"
