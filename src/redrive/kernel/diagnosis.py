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
    """Something that doctor found; ``fix`` is exactly what to type or change. ``about``: which thing it is about, a
    word for what it is and its name. ``quoted`` are words of a task, which not everybody may see."""

    level: Level
    code: str
    text: str
    fix: str | None = None
    about: tuple[str, str] | None = None
    quoted: str | None = None

    @property
    def full(self) -> str:
        return self.text if self.quoted is None else f"{self.text}: {self.quoted}"


@dataclass(slots=True)
class Diagnosis:
    """A store's figures about itself. ``oldest``: since when the first runnable task of each queue waits. ``expired``:
    how many leases ran out without being recovered, with the oldest of them (None when there are none). ``unknown``:
    how many tasks that have not ended belong to features that no live worker knows, up to 1,000 of each."""

    now: datetime
    oldest: dict[str, datetime] = field(default_factory=dict)
    expired: int = 0
    oldest_expired: datetime | None = None
    unknown: dict[str, int] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
