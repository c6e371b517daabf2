"""The port: what a store must be able to do. Stores pass ``redrive.testing.conformance``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from redrive.kernel.audit import AuditFilter
from redrive.kernel.commit import Applied, Commit
from redrive.kernel.diagnosis import Diagnosis
from redrive.kernel.failed import FailedCount, FailedRef, FailureFilter, TaskStatus
from redrive.kernel.joins import Join
from redrive.kernel.machine import ExpiredLease, Transition
from redrive.kernel.reads import (
    Count,
    GroupRow,
    Holder,
    HoldRow,
    LetterCount,
    LimitRow,
    Overview,
    Query,
    ScheduleRow,
    WorkerRow,
)
from redrive.kernel.records import Record
from redrive.kernel.retention import DEFAULTS, Retention
from redrive.kernel.task import AuditRow, Claimed, DeadLetter, Task, Timeline

# What reads ask for and return is part of the port, for those who have a store.
__all__ = [
    "MOST_ENTRIES",
    "Capabilities",
    "ClaimRequest",
    "Count",
    "Cycle",
    "GroupRow",
    "Heartbeat",
    "HoldRow",
    "Holder",
    "LetterCount",
    "LimitRow",
    "Migrations",
    "Overview",
    "Query",
    "ScheduleRow",
    "SchemaStatus",
    "Store",
    "TickResult",
    "Transaction",
    "Wake",
    "WorkerRow",
]

MOST_ENTRIES = 500  # of a task's timeline: a task may have a million attempts


@dataclass(slots=True, frozen=True)
class Capabilities:
    """What a store cannot do is said here, not discovered in production."""

    sql: bool = True
    ledger: bool = True
    notifies: bool = True


@dataclass(slots=True, frozen=True)
class ClaimRequest:
    """A claim: up to ``count`` ready tasks of ``queues``, the first queue drained first.

    ``handles`` restricts it to the kinds named (others are set aside for whoever handles them);
    ``only`` takes tasks of one kind, to fill up a bulk handler.
    """

    worker_id: str
    queues: tuple[str, ...]
    count: int
    lease: float
    handles: tuple[str, ...] | None = None
    only: str | None = None


@dataclass(slots=True)
class Cycle:
    """The answer to a settle-and-claim: what was claimed, and which settlements lost their lease.

    ``more``: the claim came back short although there may be more; it is worth looking again at once.
    """

    claimed: list[Claimed] = field(default_factory=list)
    lost: set[UUID] = field(default_factory=set)
    more: bool = False


@dataclass(slots=True, frozen=True)
class Heartbeat:
    """A worker telling the store that it is alive."""

    worker_id: str
    host: str
    pid: int
    queues: tuple[str, ...]
    concurrency: int
    running: int
    version: str
    duties: Mapping[str, float]
    stopping: bool = False
    every: float = 1.5  # seconds until the next one
    # Duties that nobody is sent to while there is no document of this collection and state.
    while_records: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True)
class TickResult:
    """The answer to a beat: duties this worker now has, its tasks to cancel, seconds until something is due."""

    duties: list[str] = field(default_factory=list)
    cancels: list[UUID] = field(default_factory=list)
    next_due: float | None = None
    promoted: int = 0


@dataclass(slots=True, frozen=True)
class Wake:
    """A hint that it is worth looking: ready work, something due soon, or a cancel request. Never relied upon."""

    queue: str | None = None
    due_in: float | None = None
    cancel: bool = False


class Transaction(Protocol):
    """A database transaction that a handler writes in; its completion commits with it."""

    async def execute(self, sql: str, *args: Any) -> Any: ...
    async def fetch(self, sql: str, *args: Any) -> list[Any]: ...


class Migrations(Protocol):
    """Schema versions of one store."""

    async def status(self) -> SchemaStatus: ...
    async def up(self, to: int | None = None) -> list[str]: ...
    async def down(self, to: int) -> list[str]: ...
    def sql(self, *, down: bool = False, to: int | None = None) -> str: ...


@dataclass(slots=True, frozen=True)
class SchemaStatus:
    version: int
    latest: int
    pending: tuple[str, ...]
    applied: tuple[tuple[int, str, datetime], ...] = ()


class Store(Protocol):
    """Where tasks live. Every method is one transaction, or none at all."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def migrations(self) -> Migrations: ...

    @property
    def reacting(self) -> tuple[str, ...]:
        """The features whose reactions this process knows; it leaves tasks of others alone."""

    async def open(self) -> None:
        """Check that the store is reachable and its schema is one that this code understands."""

    async def apply(self, commit: Commit, *, again: bool = False, in_parts: bool = False) -> Applied:
        """Apply everything of a Commit, and what features add to its moves, in one transaction.

        ``again``: the answer to an earlier try was lost; what landed then counts as landed now. ``in_parts``: its
        enqueues, which have no keys, are made while they are looked at, and may be sent in parts of the transaction."""

    async def cycle(self, commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
        """Apply a Commit, usually of settlements, and claim, in one transaction: the hot loop. ``again`` as above."""

    async def joins(self, join_ids: Collection[UUID]) -> list[Join]:
        """Those that there are, in any order."""

    async def feature_rows(self, feature: str, statement: str, *args: Any) -> list[dict[str, Any]]:
        """What a feature's own named statement finds; it only looks."""

    async def renew(self, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]) -> set[UUID]:
        """Extend leases and store progress, fenced by token; answers the ids that are no longer held."""

    async def tick(self, beat: Heartbeat) -> TickResult: ...
    async def expired(self, limit: int) -> list[ExpiredLease]: ...
    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]: ...
    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        """One bounded piece of a store's own housekeeping; answers how many rows it touched."""

    async def scrub(self) -> bool:
        """Have what was erased leave the files, too, as far as a store can do that: False while others are in the way,
        and the next pruning will do it."""

    async def get(self, task_id: UUID) -> Task | None: ...
    async def get_many(self, task_ids: Collection[UUID], *, documents: int | None = None) -> dict[UUID, Task]:
        """Those that there are, in the order asked for; ``documents`` as in ``Query``."""

    async def statuses(self, task_ids: Collection[UUID]) -> dict[UUID, TaskStatus]:
        """The same without payloads, for whoever only has to know what became of them."""

    async def find(self, query: Query) -> list[Task]: ...
    async def timeline(self, task_id: UUID, *, documents: int | None = None) -> Timeline | None:
        """A task and the latest ``MOST_ENTRIES`` of its attempts, dead letters and audit rows."""

    async def dead_letters(self, query: Query) -> list[DeadLetter]: ...
    async def failed(
        self, which: FailureFilter, *, limit: int, offset: int = 0, after: int = 0, upto: int | None = None,
        newest: bool = False, documents: int | None = None,
    ) -> list[Task]:  # fmt: skip
        """Tasks that are failed now, in the order they failed; ``after`` and ``upto`` are values of ``failed_seq``."""

    async def failed_ids(
        self, which: FailureFilter, *, limit: int, after: int = 0, upto: int | None = None
    ) -> list[FailedRef]:
        """The same, without what the tasks carry."""

    async def count_failed(self, which: FailureFilter) -> int:
        """How many those are: by totals, where the filter allows it, else by an index."""

    async def failed_counts(self, fingerprints: Sequence[str] | None = None) -> list[FailedCount]:
        """Totals, the largest first; None: of all causes."""

    async def failed_end(self, which: FailureFilter) -> tuple[int, int]:
        """Everything that is failed by now has at most this ``failed_seq``, and what fails later has more; and how many
        of those up to it match."""

    async def cancelled(
        self, which: FailureFilter, *, limit: int, offset: int = 0, after: int = 0, upto: int | None = None
    ) -> list[FailedRef]:
        """Tasks that were given up and whose last dead letter matches, in the order of these letters; ``failed_seq``,
        ``after`` and ``upto`` are numbers of letters."""

    async def cancelled_end(self, which: FailureFilter) -> tuple[int, int]:
        """The number of the last dead letter by now, and how many of those match."""

    async def letter_counts(self) -> list[LetterCount]:
        """How many dead letters there are, per queue and kind: kept, not counted."""

    async def failed_sums(self, limit: int) -> dict[str, dict[str, int]]:
        """Tasks that are failed now, by ``total``, ``kind``, ``queue``, ``group``, ``code``, ``type``, ``reason`` (why
        they are dead) and ``cause``: the largest of each, whatever the number of causes."""

    async def groups(
        self, limit: int, *, before: tuple[datetime, str] | None = None, failing: bool | None = None
    ) -> list[GroupRow]:
        """The latest first; ``before`` is ``last_seen`` and ``fingerprint`` of the last one seen. ``failing``: only
        those by which tasks are failed now, or (False) none is; what changed this moment may come along."""

    async def group(self, fingerprint: str) -> GroupRow | None: ...
    async def groups_of(self, fingerprints: Sequence[str]) -> list[GroupRow]:
        """Those that there are, in any order."""

    async def trends(self, fingerprints: Sequence[str], since: datetime) -> dict[str, list[tuple[datetime, int]]]:
        """Failures per hour of these groups, oldest first; hours without one are left out."""

    async def audit(
        self, which: AuditFilter, *, limit: int, offset: int = 0, before: int | None = None, after: int | None = None,
        documents: int | None = None,
    ) -> list[AuditRow]:  # fmt: skip
        """Newest first, from ``before`` on; with ``after`` oldest first, beyond it."""

    async def count_audit(self, which: AuditFilter) -> int: ...
    async def record(self, collection: str, record_id: str) -> Record | None: ...
    async def records(
        self, collection: str, *, states: Sequence[str] = (), ids: Sequence[str] | None = None, limit: int = 100,
        before: int | None = None,
    ) -> list[Record]:  # fmt: skip
        """Newest first; ``before`` is the ``seq`` of the last one seen."""

    async def personal(self, scope: str | None, task_ids: Collection[UUID] = ()) -> dict[str, int]:
        """What is kept about a scope, or about tasks: how many, by place; tasks that run now apart."""

    async def erasable(self, scope: str, limit: int) -> list[UUID]:
        """Tasks of a scope that do not run, live, finished, or known by a dead letter only."""

    async def now(self) -> datetime: ...
    async def diagnose(self) -> Diagnosis:
        """The store's own health; a handful of statements that look at no more rows than they have to."""

    async def vitals(self) -> dict[str, int]:
        """Figures whose trend matters: ``size`` in bytes, ``dead:table`` for rows that await removal."""

    async def counts(self) -> list[Count]: ...
    async def balance(self, account: str) -> int: ...
    async def overview(self) -> Overview: ...
    async def holders(self) -> list[Holder]:
        """Who holds the tasks that run now; costs no more than there are of those."""

    def transaction(self, settlement: Callable[[], Transition]) -> AbstractAsyncContextManager[Transaction]:
        """A transaction of the store's own database that applies ``settlement()`` as its last statement."""

    def listen(self, on_wake: Callable[[Wake], None], queues: Sequence[str]) -> Callable[[], None]:
        """Start sending hints about these queues to the callback, from now until the answer is called, or ``close``.
        Others may come along."""

    async def close(self) -> None: ...

    def abandon(self, *, inherited: bool = False) -> None:
        """Let go of everything without an event loop: the one that it was opened on is gone. ``inherited``: what is
        open is another process's, which goes on using it."""
