"""``redrive schedules``: periodic tasks; run one now, pause and resume one."""

from __future__ import annotations

from redrive.cli.declared import group_of
from redrive.ops.operator.schedules import ScheduleService

schedules_cli = group_of(ScheduleService)
