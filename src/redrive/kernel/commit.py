"""Commit: everything that lands together, as one value. A store applies it in one transaction or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING
from uuid import UUID

from redrive.errors import IdempotencyConflict
from redrive.kernel.audit import Audit
from redrive.kernel.circuit import SetCircuit

if TYPE_CHECKING:
    from redrive.kernel.applied import Applied
    from redrive.kernel.audit import BulkAction
    from redrive.kernel.erase import Erase
    from redrive.kernel.joins import NewJoin
    from redrive.kernel.ledger import Posting
    from redrive.kernel.machine import Transition
    from redrive.kernel.reactions import Rows
    from redrive.kernel.records import Put
    from redrive.kernel.task import Enqueued, NewTask


class Target(StrEnum):
    """What can be paused, besides a single task."""

    QUEUE = "queue"
    KIND = "kind"
    GROUP = "group"
    SCHEDULE = "schedule"


@dataclass(slots=True, frozen=True)
class Hold:
    """Pause (``on``) or resume a queue, kind or group."""

    target: Target
    name: str
    on: bool
    actor: str
    reason: str | None = None

    @property
    def audit(self) -> Audit:
        """The audit row that it leaves where it changes something."""
        action, subject = f"{self.target.upper()}_{'PAUSE' if self.on else 'RESUME'}", f"{self.target}:{self.name}"
        before, after = {"paused": not self.on}, {"paused": self.on}
        return Audit(self.actor, action, self.reason, before=before, after=after, target=subject)


@dataclass(slots=True, frozen=True)
class Limit:
    """What the whole fleet may do with a kind: at most ``concurrency`` at once, starts ``rate_ms`` apart.

    Both None: the kind keeps a lane of its own but no limit. ``actor`` set means an operator changed it,
    which a worker's configuration (actor None) does not overwrite later.
    """

    kind: str
    concurrency: int | None = None
    rate_ms: int | None = None
    actor: str | None = None

    def audit(self, concurrency: int | None, rate_ms: int | None) -> Audit | None:
        """Returns the audit row of an operator's limit, after these."""
        if self.actor is None:
            return None
        before = {"concurrency": concurrency, "rate_ms": rate_ms}
        after = {"concurrency": self.concurrency, "rate_ms": self.rate_ms}
        return Audit(self.actor, "KIND_LIMIT", before=before, after=after, target=f"kind:{self.kind}")


@dataclass(slots=True, frozen=True)
class CancelRequest:
    """Ask whoever runs the task to stop. The task stays running until its worker settles it. Whoever asks first is in
    the audit log; to ask again changes nothing."""

    task_id: UUID
    actor: str
    reason: str | None = None

    @property
    def audit(self) -> Audit:
        """The audit row of whoever asks first."""
        before, after = {"state": "running"}, {"state": "running", "cancel_requested": True}
        return Audit(self.actor, "TASK_CANCEL_REQUEST", self.reason, self.task_id, before=before, after=after)


@dataclass(slots=True, frozen=True)
class Drain:
    """Ask a worker to claim no more, finish what it runs, and end. It hears of it with its next beat."""

    worker_id: str
    actor: str
    reason: str | None = None

    @property
    def audit(self) -> Audit:
        """The audit row of whoever asks first."""
        before, after = {"draining": False}, {"draining": True}
        return Audit(
            self.actor, "WORKER_DRAIN", self.reason, before=before, after=after, target=f"worker:{self.worker_id}"
        )


@dataclass(slots=True, frozen=True)
class Schedule:
    """A periodic task as declared by an application."""

    name: str
    kind: str
    cron: str
    timezone: str
    missed: str
    queue: str
    payload: str | None
    priority: int
    max_attempts: int
    next_at: datetime


@dataclass(slots=True, frozen=True)
class Declare:
    """All schedules of one application: new ones are added, changed ones take their new ``next_at``, others go."""

    owner: str
    schedules: tuple[Schedule, ...]


@dataclass(slots=True, frozen=True)
class KnownNames:
    """Queues and kinds that an application declares or routes: tasks of these are never refused. ``most``: how many
    others there may be, a kind in a queue each; None: as many as before. ``attempts``: how often kinds are tried
    that it handles; None where it does not say."""

    queues: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    most: int | None = None
    attempts: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Fire:
    """Enqueue a schedule's tasks, unless somebody fired it since ``seen`` (its ``next_at`` when it was read)."""

    name: str
    seen: datetime
    next_at: datetime
    tasks: tuple[NewTask, ...]


@dataclass(slots=True, frozen=True)
class CloseJoin:
    """Ends the adding of members: a join that was opened ``open`` ends when the members that it has have ended."""

    join_id: UUID


Control = Hold | Limit | CancelRequest | Drain | Declare | KnownNames | CloseJoin | SetCircuit


@dataclass(slots=True)
class Commit:
    # Joins come before the tasks that are their members.
    joins: Sequence[NewJoin] = ()
    enqueues: Sequence[NewTask] = ()
    transitions: Sequence[Transition] = ()
    controls: Sequence[Control] = ()
    fires: Sequence[Fire] = ()
    postings: Sequence[Posting] = ()
    rows: Sequence[Rows] = ()
    audits: Sequence[Audit] = ()
    bulk: BulkAction | None = None
    # Documents that change with it; if one of them was changed by somebody else, nothing of this happens.
    puts: Sequence[Put] = ()
    # Audit rows that are past their keep, by their ids.
    pruned: Sequence[int] = ()
    # Personal data that goes, after the transitions.
    erase: Erase | None = None
    # Further audit rows, that depend on what became of the rest; documents (puts) come after them.
    conclusion: Callable[[Applied], Sequence[Audit]] | None = None
    # Refuse everything (IdempotencyConflict) if one key already names other work.
    all_or_none: bool = False

    @property
    def only_enqueues(self) -> bool:
        """True if it only adds tasks that do not depend on each other: they may share a transaction with those of other
        callers."""
        return bool(self.enqueues) and not self.all_or_none and not self.transitions and not self._has_others

    @property
    def new_tasks(self) -> Iterator[NewTask]:
        """Yields all tasks that it adds, now or when a join ends."""
        yield from self.enqueues
        for join in self.joins:
            yield from (task for task in (join.on_complete, join.on_success) if task is not None)

    @property
    def only_new_tasks(self) -> bool:
        """True if it adds tasks and joins, and does nothing else."""
        return not self.transitions and all(other is self.joins for other in self._others)

    @property
    def only_transitions(self) -> bool:
        """True if it moves tasks and does nothing else, or does nothing at all."""
        return not self.enqueues and not self._has_others

    @property
    def recognisable(self) -> bool:
        """True if a store can tell that it landed before: a join is known by its id, and with it all that came along;
        tasks and postings land once, by their ids and keys. Rows and audit rows have no such thing."""
        return bool(self.joins) or (not self.transitions and all(other is self.postings for other in self._others))

    @property
    def only_adds(self) -> bool:
        """True if it changes nothing that is there, but for joins that it closes: then it may be part of a transaction
        of somebody's own."""
        changes = (self.transitions, self.fires, self.bulk, self.puts, self.pruned, self.erase, self.conclusion)
        return not any(changes) and all(isinstance(control, CloseJoin) for control in self.controls)

    @property
    def _others(self) -> tuple[object, ...]:
        """What it holds besides tasks and their moves."""
        return tuple(other for name in _OTHERS if (other := getattr(self, name)))

    @property
    def _has_others(self) -> bool:
        # Spelt out: every enqueue and every cycle of a worker comes by here.
        return bool(
            self.joins
            or self.controls
            or self.fires
            or self.postings
            or self.rows
            or self.audits
            or self.bulk
            or self.puts
            or self.pruned
            or self.conclusion
            or self.erase
        )

    def check_conflicts(self, answers: Sequence[Enqueued]) -> None:
        """Raises IdempotencyConflict if one key of an all-or-none Commit names other work; called inside the store's
        transaction."""
        if self.all_or_none:
            for task, answer in zip(self.enqueues, answers, strict=True):
                if answer.conflict:
                    raise IdempotencyConflict(task.idempotency_key or "", answer.id)


_OTHERS = tuple(one.name for one in fields(Commit) if one.name not in ("enqueues", "transitions", "all_or_none"))
