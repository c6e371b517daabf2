"""What a store says about its own health."""

from __future__ import annotations

from collections.abc import Iterable
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
    word for what it is and its name. ``quoted`` are words of a task, which not everybody may see. ``page``: where the
    console shows it, of a feature."""

    level: Level
    code: str
    text: str
    fix: str | None = None
    about: tuple[str, str] | None = None
    quoted: str | None = None
    page: str | None = None

    @property
    def full(self) -> str:
        return self.text if self.quoted is None else f"{self.text}: {self.quoted}"


@dataclass(slots=True, frozen=True)
class Dependency:
    """Something that a feature cannot do without: a sink, a provider. Who asks for it needs no token, so that name and
    detail name no secrets. With ``fresh_for``, a ``last_success`` longer ago than so many seconds is none. ``blocks``:
    without it the process is not ready; else it is told of, and no more."""

    name: str
    ok: bool = True
    detail: str | None = None
    last_success: datetime | None = None
    fresh_for: float | None = None
    blocks: bool = True

    def problem(self, now: datetime) -> str | None:
        """Returns why it cannot be relied on; None when it can."""
        if not self.ok:
            return f"{self.name}: {self.detail or 'not reachable'}"
        if self.fresh_for is None:
            return None
        if self.last_success is None:
            return f"{self.name}: it has not succeeded yet"
        age = (now - self.last_success).total_seconds()
        return f"{self.name}: its last success was {age:.0f} s ago" if age > self.fresh_for else None


@dataclass(slots=True)
class Diagnosis:
    """A store's figures about itself. ``oldest``: since when the first runnable task of each queue waits. ``expired``:
    how many leases ran out without being recovered, with the oldest of them (None when there are none). ``stuck``: how
    many of these are of which feature's tasks, with the oldest. ``unknown``: how many tasks that have not ended belong
    to features that no live worker knows, up to 1,000 of each. ``identity`` tells this store from all others at this
    moment, however its URL is written; ``vitals`` are figures whose trend matters: ``size`` in bytes, ``dead:table``
    for rows that await removal."""

    now: datetime
    identity: str = ""
    vitals: dict[str, int] = field(default_factory=dict)
    oldest: dict[str, datetime] = field(default_factory=dict)
    expired: int = 0
    oldest_expired: datetime | None = None
    stuck: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)  # joins, up to 20, and why what follows was not enqueued
    left_open: int = 0  # joins that are open for a week, up to 1,000
    findings: list[Finding] = field(default_factory=list)

    def note_expired(self, rows: Iterable[tuple[str | None, int, datetime]]) -> None:
        """Takes in leases that ran out: the feature of their tasks, how many, and the oldest."""
        found = list(rows)
        self.expired = sum(n for _, n, _ in found)
        self.oldest_expired = min((oldest for _, _, oldest in found), default=None)
        self.stuck = {feature: (n, oldest) for feature, n, oldest in found if feature is not None}
