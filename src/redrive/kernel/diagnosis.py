"""What a store says about its own health."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(slots=True, frozen=True)
class Finding:
    """``fix`` is what to type or change, exactly."""

    level: Level
    code: str
    text: str
    fix: str | None = None


@dataclass(slots=True)
class Diagnosis:
    """``oldest``: since when the first runnable task of each queue waits. ``expired``: leases that ran out and that
    nobody has recovered, with the oldest of them (None when there are none)."""

    now: datetime
    oldest: dict[str, datetime] = field(default_factory=dict)
    expired: int = 0
    oldest_expired: datetime | None = None
    findings: list[Finding] = field(default_factory=list)
