"""What a store should do, as simply as it can be said: dictionaries and a clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from redrive.kernel.machine import TABLE, Attempts, Event, Transition
from redrive.kernel.task import Claimed, State

QUOTA = {"LIMITED": 2}


@dataclass
class Row:
    id: UUID
    kind: str
    priority: int
    max_attempts: int
    state: State
    position: int = 0
    attempts: int = 0
    replays: int = 0
    token: UUID | None = None
    due: float | None = None
    lease_until: float | None = None
    cancel: bool = False
    letters: int = 0


@dataclass
class Model:
    clock: float = 0.0
    rows: dict[UUID, Row] = field(default_factory=dict)
    keys: dict[str, tuple[UUID, str]] = field(default_factory=dict)
    audits: int = 0
    _positions: int = 0

    def enqueue(self, row: Row, delay: float) -> None:
        self.rows[row.id] = row
        self._wait(row, State.DELAYED if delay else State.QUEUED, delay)

    def claimable(self, count: int) -> list[UUID]:
        """Which tasks a claim must answer, in order."""
        running = {kind: sum(r.kind == kind and r.state is State.RUNNING for r in self.rows.values()) for kind in QUOTA}
        chosen: list[UUID] = []
        for row in sorted(self.rows.values(), key=lambda r: (r.priority, r.position)):
            if row.state is not State.QUEUED or len(chosen) == count:
                continue
            if row.kind in QUOTA:
                if running[row.kind] >= QUOTA[row.kind]:
                    continue
                running[row.kind] += 1
            chosen.append(row.id)
        return chosen

    def claimed(self, task: Claimed, lease: float) -> None:
        row = self.rows[task.id]
        row.state, row.token, row.lease_until = State.RUNNING, task.token, self.clock + lease
        row.attempts += 1

    def move(self, move: Transition) -> bool:
        """Whether the move lands, and what it leaves behind."""
        row, rule = self.rows[move.task_id], TABLE[move.event]
        if row.state not in rule.sources or (rule.fenced and row.token != move.token):
            return False
        if move.expired and (row.lease_until or 0) > self.clock:
            return False
        to = move.to
        if row.cancel and (to in (State.QUEUED, State.DELAYED) or move.event is Event.EXPIRE):
            to = State.CANCELLED
        elif move.event is Event.RESUME and row.due is not None and row.due > self.clock:
            to = State.DELAYED
        if rule.attempts is Attempts.GIVE_BACK and to is not State.CANCELLED:
            row.attempts -= 1
        if move.event is Event.REDRIVE:
            row.attempts, row.replays = 0, row.replays + 1
        row.letters += move.dead is not None and to is not State.CANCELLED
        self.audits += move.actor is not None
        row.token, row.lease_until, row.cancel = None, None, False
        if move.event in (Event.PAUSE, Event.RESUME) and to is not State.QUEUED:
            row.state = to
        else:
            self._wait(row, to, move.delay)
        return True

    def renew(self, task: Claimed, lease: float) -> bool:
        row = self.rows[task.id]
        if row.token != task.token:
            return False
        row.lease_until = self.clock + lease
        return True

    def ask_to_cancel(self, task_id: UUID) -> bool:
        row = self.rows[task_id]
        if row.state is State.RUNNING:
            self.audits += not row.cancel  # who asks again is told who asked first
            row.cancel = True
        return row.state is State.RUNNING

    def promote(self) -> int:
        ready = [r for r in self.rows.values() if r.state is State.DELAYED and (r.due or 0) <= self.clock]
        for row in sorted(ready, key=lambda r: (r.due or 0, r.position)):
            self._wait(row, State.QUEUED, 0.0)
        return len(ready)

    def expired(self) -> set[UUID]:
        running = [r for r in self.rows.values() if r.state is State.RUNNING]
        return {r.id for r in running if (r.lease_until or 0) <= self.clock}

    def _wait(self, row: Row, state: State, delay: float) -> None:
        # Positions are also given to delayed rows: they tell apart rows that are due at the same time.
        self._positions += 1
        row.state, row.position = state, self._positions
        row.due = self.clock + delay if state is State.DELAYED else None
