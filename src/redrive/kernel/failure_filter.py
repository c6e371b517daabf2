"""Filters and counts of the tasks that are failed now."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from uuid import UUID

from redrive.kernel.task import State, Task

_COLUMNS = {"fingerprint": "error_fingerprint", "bulk_id": "last_replayed_bulk_id", "join": "join_id"}
_NO_COLUMNS = ("ids", "since", "until", "forgotten")


@dataclass(slots=True, frozen=True)
class FailureFilter:
    """Selects tasks that are failed now; None means any. Where a retry by it is about cancelled tasks too,
    ``forgotten`` adds those that somebody forgot or purged: without it these come back by their ids only."""

    kind: str | None = None
    queue: str | None = None
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    error_code: str | None = None
    error_reason: str | None = None
    failure_type: str | None = None
    dead_reason: str | None = None
    fingerprint: str | None = None
    bulk_id: str | None = None  # the bulk action that retried them last
    ids: tuple[UUID, ...] | None = None
    since: datetime | None = None  # failed then or later
    until: datetime | None = None  # and before this
    join: str | None = None  # members of this one, a batch for instance
    forgotten: bool | None = None

    @property
    def everything(self) -> bool:
        """True if nothing narrows it down."""
        return replace(self, forgotten=None) == FailureFilter()

    @property
    def with_forgotten(self) -> bool:
        """True if forgotten tasks are meant, too."""
        return bool(self.forgotten) or self.ids is not None

    def unlike(self, task: Task) -> str | None:
        """Returns why a task does not match, whatever its state; None when it matches."""
        for name, wanted in asdict(self).items():
            found = getattr(task, _COLUMNS.get(name, name), None)
            found = str(found) if isinstance(found, UUID) else found
            if name not in _NO_COLUMNS and wanted is not None and found != wanted:
                return f"its {name.replace('_', ' ')} is {found or 'none'}, not {wanted}"
        return self._outside(task.failed_at)

    @property
    def unsummed(self) -> list[str]:
        """Names of those that are given and by which no totals are kept: for these, tasks have to be counted."""
        summed = {one.name for one in fields(FailedCount)}
        given = [name for name, wanted in asdict(self).items() if wanted is not None]
        return sorted(name for name in given if name not in summed and name != "forgotten")

    def sums(self, count: FailedCount) -> bool:
        """Returns whether a total is part of what matches, as far as totals are kept."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return all(getattr(count, name, value) == value for name, value in given.items())

    def _outside(self, failed_at: datetime | None) -> str | None:
        if self.since is None and self.until is None:
            return None
        if failed_at is None:
            return "it is not known when it failed"
        if self.since is not None and failed_at < self.since:
            return f"it failed before {self.since.isoformat()}"
        return None if self.until is None or failed_at < self.until else f"it failed after {self.until.isoformat()}"


EVERY_FAILURE = FailureFilter()


@dataclass(slots=True, frozen=True)
class FailedRef:
    """A failed task and which of its failures is meant. The task may be gone by now."""

    id: UUID
    failed_seq: int | None
    error_fingerprint: str | None
    failed_at: datetime | None = None  # when that was, for tasks that are failed now; for given-up ones, when they were


@dataclass(slots=True, frozen=True)
class TaskStatus:
    """A task's state, without what it carries."""

    id: UUID
    state: State
    failed_seq: int | None = None
    error_code: str | None = None
    error_fingerprint: str | None = None
    erased: bool = False
    kind: str = ""
    queue: str = ""
    trace_id: str | None = None
    attempt_count: int = 0
    feature: str | None = None
    deaths: int = 0  # workers that were lost in a row while they had it


@dataclass(slots=True, frozen=True)
class FailedCount:
    """How many tasks are failed now and have all of these values in common."""

    kind: str
    queue: str
    group: str | None
    error_code: str
    error_reason: str
    failure_type: str
    dead_reason: str
    fingerprint: str
    n: int
