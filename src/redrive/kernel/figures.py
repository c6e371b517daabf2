"""What a whole fleet is measured by: figures of one moment, read from the store by one statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from redrive.kernel.reads import WorkerRow
from redrive.kernel.task import State

LATE_AFTER_S = 60.0  # a schedule whose run is overdue for longer than this is late
UNFINISHED = (State.QUEUED, State.DELAYED, State.RUNNING)
MOST_COUNTED = 1_000  # of what is counted by looking at rows
MOST_WAITING = 100_000  # of those that wait, where a threshold asks for more than MOST_COUNTED


@dataclass(slots=True, frozen=True)
class KindFigures:
    """The exact totals of a kind in a queue."""

    queue: str
    kind: str
    states: Mapping[State, int]
    dead_letters: int = 0

    @property
    def enqueued(self) -> int:
        """Every task there ever was: none leaves the totals, whatever is pruned."""
        return sum(self.states.values())


@dataclass(slots=True, frozen=True)
class CircuitFigures:
    """``age``: for how many seconds it has been open, None while it is closed. ``opened``: how many times."""

    name: str
    kinds: tuple[str, ...]
    age: float | None = None
    opened: int = 0


@dataclass(slots=True)
class Figures:
    """``oldest``: how many seconds the first runnable task of a queue and kind has waited, as far as it is among the
    first 100 of its lane. ``failed_by_code`` and ``failed_by_type``: tasks that are failed now. ``causes``: those by
    which tasks are failed now, ``expired``: leases that ran out, ``unsealed``: audit rows; each up to a bound.
    ``horizon``: for how many seconds the oldest transaction has held back the removal of dead rows. ``alerts``: the
    documents of alerts, by their ids, with versions."""

    now: datetime
    kinds: list[KindFigures] = field(default_factory=list)
    oldest: dict[tuple[str, str], float] = field(default_factory=dict)
    failed_by_code: dict[str, int] = field(default_factory=dict)
    failed_by_type: dict[str, int] = field(default_factory=dict)
    causes: int = 0
    workers: list[WorkerRow] = field(default_factory=list)
    paused_queues: list[str] = field(default_factory=list)
    paused_kinds: list[str] = field(default_factory=list)
    circuits: list[CircuitFigures] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)
    approvals: int = 0
    late_schedules: int = 0
    schedule_lateness: float = 0.0
    expired: int = 0
    unsealed: int = 0
    unsealed_age: float = 0.0
    horizon: float | None = None
    alerts: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def oldest_kinds(self) -> dict[str, datetime]:
        """Since when the first runnable task of each kind waits, of those in ``oldest``."""
        ages: dict[str, float] = {}
        for (_, kind), age in self.oldest.items():
            ages[kind] = max(ages.get(kind, 0.0), age)
        return {kind: self.now - timedelta(seconds=age) for kind, age in ages.items()}

    @property
    def waiting_kinds(self) -> set[str]:
        """The kinds whose circuit is open."""
        return {kind for circuit in self.circuits if circuit.age is not None for kind in circuit.kinds}

    @property
    def outages(self) -> dict[str, float]:
        """For how many seconds each circuit has been open; 0 for closed ones, and for those that no task waits for:
        nobody tries them, and nobody misses them."""
        wanted = {each.kind for each in self.kinds if any(each.states.get(state) for state in UNFINISHED)}
        return {one.name: max(one.age or 0.0, 0.0) if wanted & {*one.kinds} else 0.0 for one in self.circuits}
