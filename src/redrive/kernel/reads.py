"""Filters and rows of the store's reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from redrive.kernel.circuit import CircuitRow
from redrive.kernel.task import State


@dataclass(slots=True, frozen=True)
class Query:
    """Filters tasks; None means any. Newest first; ``before`` continues after the last id of a page."""

    states: tuple[State, ...] = ()
    kind: str | None = None
    queue: str | None = None
    group: str | None = None
    scope: str | None = None
    trace_id: str | None = None
    error_code: str | None = None
    error_reason: str | None = None
    fingerprint: str | None = None
    limit: int = 50
    before: UUID | None = None
    dead_reason: str | None = None
    brief: bool = False  # without payload, result, progress, memo and stack
    # None: documents as values. Else as ``JsonText``, for pages: longer ones than so many bytes are ``CUT``, no memo.
    documents: int | None = None
    failure_type: str | None = None
    join: str | None = None  # members of this one, a batch for instance
    bulk_id: str | None = None  # live tasks that this bulk retry brought back last
    not_queues: tuple[str, ...] = ()
    not_kinds: tuple[str, ...] = ()
    not_groups: tuple[str, ...] = ()

    @property
    def by_state(self) -> bool:
        """True if it is asked state by state: the index of what it is about has the state before the id."""
        return self.join is not None or self.bulk_id is not None


@dataclass(slots=True, frozen=True)
class Count:
    queue: str
    kind: str
    state: State
    n: int


_COLUMNS = [(state, state.value) for state in State]
MANY_ROWS = 1000  # from here on they are made of what a store has read outside of the event loop


def counts_of(rows: Iterable[Any]) -> list[Count]:
    """Returns totals of rows that have a column for each state."""
    return [
        Count(row["queue"], row["kind"], state, row[column])
        for row in rows
        for state, column in _COLUMNS
        if row[column]
    ]


@dataclass(slots=True, frozen=True)
class LetterCount:
    """How many dead letters a kind has in a queue, also of tasks that were retried since; and how many of its cancelled
    tasks were forgotten or purged."""

    queue: str
    kind: str
    n: int
    forgotten: int = 0


@dataclass(slots=True, frozen=True)
class RetryCount:
    """How many tasks of a bulk retry went so: ``retried`` (all of them), ``running`` now, ``completed``, ``failed``
    again by this cause, ``cancelled``; ``again``: those that somebody has retried once more since."""

    outcome: str
    cause: str
    n: int


@dataclass(slots=True, frozen=True)
class HoldRow:
    target: str
    name: str
    actor: str
    reason: str | None
    at: datetime


@dataclass(slots=True, frozen=True)
class LimitRow:
    kind: str
    concurrency: int | None
    rate_ms: int | None
    running: int
    actor: str | None
    next_at: datetime | None = None  # when the rate lets the next one start

    @property
    def limited(self) -> bool:
        """False for a kind that only has a lane of its own, unless somebody has said that it has no limit."""
        return self.concurrency is not None or self.rate_ms is not None or self.actor is not None


@dataclass(slots=True, frozen=True)
class WorkerRow:
    id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    version: str
    started_at: datetime
    seen_at: datetime
    stopping: bool
    every: float = 1.5  # seconds between two heartbeats
    hears: bool = False  # it beats apart from its loop, and hears of requests with that
    stalled: float = 0.0  # seconds that its event loop had not answered when it beat last
    drain_at: datetime | None = None  # when it was asked to end
    build: str | None = None  # of the application
    dead: bool = False  # others declared it dead, or found its process gone, and it has not beaten since


@dataclass(slots=True, frozen=True)
class WorkerLeases:
    """The leases that a worker or executor has in one queue: how many, and when the first and the last of them end.
    ``earlier``: those that were claimed well before a worker of this name was started, whose process is gone."""

    worker_id: str
    queue: str
    tasks: int
    earlier: int
    first_ends: datetime
    last_ends: datetime


@dataclass(slots=True, frozen=True)
class ScheduleRow:
    name: str
    owner: str
    kind: str
    cron: str
    timezone: str
    missed: str
    queue: str
    payload: str | None
    priority: int
    max_attempts: int
    next_at: datetime
    last_at: datetime | None


@dataclass(slots=True, frozen=True)
class CauseRow:
    """A cause. Message, summary and kind are those of the sample task's failure."""

    fingerprint: str
    count: int
    code: str
    reason: str
    failure_type: str
    message: str
    kind: str
    first_seen: datetime
    last_seen: datetime
    sample_task: UUID
    summary: Any = None


@dataclass(slots=True, frozen=True)
class CauseQuery:
    """Selects causes: these ``fingerprints``, those that begin with ``prefix`` or whose newer name does, or else the
    latest. ``before`` is ``last_seen`` and ``fingerprint`` of the last one seen. ``failing``: only those by which tasks
    are failed now, or (False) none is; what changed this moment may come along."""

    limit: int = 100
    fingerprints: Sequence[str] | None = None
    prefix: str | None = None
    before: tuple[datetime, str] | None = None
    failing: bool | None = None


class CauseOrder(StrEnum):
    """What causes are listed by, the most or the latest of it first. ``FAILED``: tasks that are failed now, ``COUNT``:
    failures ever, ``TREND``: failures of the last day."""

    FAILED = "failed"
    COUNT = "count"
    FIRST = "first"
    LAST = "last"
    TREND = "trend"


@dataclass(slots=True, frozen=True)
class CauseMember:
    """What a task that is failed by a cause has in common with others: for whom it was, whom it called, and which build
    of the application ran it last."""

    scope: str | None
    group: str | None
    peer: str | None
    build: str | None


@dataclass(slots=True, frozen=True)
class RankedCause:
    """A cause, how many tasks that match are failed by it now, and what it is ordered by: a number, or a time in
    microseconds."""

    fingerprint: str
    failed: int
    key: int


@dataclass(slots=True, frozen=True)
class CauseRanking:
    """Causes in their order, and how many there are in all. ``at_least``: there are more."""

    causes: list[RankedCause]
    total: int
    at_least: bool = False


@dataclass(slots=True)
class Overview:
    """The small tables as a whole: workers, schedules, limits, pauses, circuits."""

    now: datetime
    holds: list[HoldRow]
    limits: list[LimitRow]
    workers: list[WorkerRow]
    schedules: list[ScheduleRow]
    circuits: list[CircuitRow] = field(default_factory=list)
    _pauses: dict[tuple[str, str], HoldRow] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._pauses = {(hold.target, hold.name): hold for hold in self.holds}  # asked for of each queue and kind

    def pause_of(self, target: str, name: str) -> HoldRow | None:
        """Returns the pause of a queue, kind, group or schedule; None when it is not paused."""
        return self._pauses.get((target, name))

    def circuit_of(self, kind: str) -> CircuitRow | None:
        """Returns the open circuit that tasks of this kind wait for; None when there is none."""
        return next((row for row in self.circuits if row.open and kind in row.kinds), None)
