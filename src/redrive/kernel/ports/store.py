"""The port: what a store must be able to do. Stores pass ``redrive_kit.conformance``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from redrive.kernel.ports.audit import AuditReads
from redrive.kernel.ports.failures import FailureReads
from redrive.kernel.ports.features import FeatureReads
from redrive.kernel.ports.health import HealthReads
from redrive.kernel.ports.liveness import Beat, Dead, Heard, Judgement, Liveness, Neighbour, Process
from redrive.kernel.ports.records import RecordReads
from redrive.kernel.ports.series import SeriesReads
from redrive.kernel.ports.tasks import MOST_ENTRIES, TaskReads
from redrive.kernel.reads import (
    CauseRow,
    Count,
    HoldRow,
    LetterCount,
    LimitRow,
    Overview,
    Query,
    RetryCount,
    ScheduleRow,
    WorkerLeases,
    WorkerRow,
)
from redrive.kernel.retention import DEFAULTS, Retention
from redrive.kernel.retry_guard import Guards

if TYPE_CHECKING:
    from redrive.kernel.applied import Applied
    from redrive.kernel.commit import Commit
    from redrive.kernel.machine import ExpiredLease, Transition
    from redrive.kernel.meter import Meter
    from redrive.kernel.series import TallySheet
    from redrive.kernel.task import Claimed, State

# What reads ask for and return is part of the port, for those who have a store.
__all__ = [
    "MOST_ENTRIES",
    "Beat",
    "Capabilities",
    "CauseRow",
    "ClaimRequest",
    "Count",
    "Cycle",
    "Dead",
    "Heard",
    "Heartbeat",
    "HoldRow",
    "Judgement",
    "LetterCount",
    "LimitRow",
    "Migrations",
    "Neighbour",
    "Overview",
    "Process",
    "Query",
    "RetryCount",
    "ScheduleRow",
    "SchemaStatus",
    "Store",
    "TickResult",
    "Transaction",
    "Wake",
    "WorkerLeases",
    "WorkerRow",
]


@dataclass(slots=True, frozen=True)
class Capabilities:
    """What a store can do; whatever it cannot is False here, and known before it is used."""

    any_loop: bool = False  # one store serves every event loop of the process
    notifies: bool = True  # listeners hear of what other processes do; else they look for themselves
    # What features may need of it (``Need``).
    reactions: bool = True  # what features add to a move lands in its transaction
    joins: bool = True
    ledger: bool = True
    tables: bool = True  # tables of features, and rows of them in a Commit


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
    """What a settle-and-claim returns: what was claimed, and which settlements lost their lease.

    ``more``: the claim came back short although there may be more; it is worth looking again at once. ``instead``:
    where settlements led that met something in their row (``machine.INSTEAD``); all others led where they were to.
    """

    claimed: list[Claimed] = field(default_factory=list)
    lost: set[UUID] = field(default_factory=set)
    more: bool = False
    instead: dict[UUID, State] = field(default_factory=dict)


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
    # Duties that are not given out while there is no document of this collection and state.
    while_records: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    sheet: TallySheet | None = None  # what was counted since the last one that was taken


@dataclass(slots=True)
class TickResult:
    """What a heartbeat returns: duties this worker now has, its tasks to cancel, seconds until something is due."""

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

    def entered(self) -> AbstractContextManager[None]:
        """Makes the calling context one that is inside: a thread that works in it did not open it itself."""

    def abort(self) -> None:
        """Rolls back without waiting for it, from outside: its handler hangs. What that still does is refused."""


class Migrations(Protocol):
    """Schema versions of one store."""

    async def status(self) -> SchemaStatus: ...
    async def up(self, to: int | None = None) -> list[str]: ...
    async def down(self, to: int) -> list[str]: ...
    def sql(self, *, down: bool = False, to: int | None = None) -> str: ...


@dataclass(slots=True, frozen=True)
class SchemaStatus:
    """Where a schema stands: ``version`` of ``latest`` are redrive's own. ``applied`` are its steps, ``features`` those
    of each feature that has some here or brings some, also of features that this process does not know."""

    version: int
    latest: int
    pending: tuple[str, ...]
    applied: tuple[tuple[int, str, datetime], ...] = ()
    features: Mapping[str, tuple[tuple[int, str, datetime], ...]] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()  # those of them that have tables here, and that this process does not know


class Store(
    TaskReads, FailureReads, RecordReads, AuditReads, HealthReads, SeriesReads, FeatureReads, Liveness, Protocol
):
    """Where tasks live. Every method is one transaction, or none at all."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def migrations(self) -> Migrations: ...

    @property
    def reacting(self) -> tuple[str, ...]:
        """The features whose reactions this process knows; it leaves tasks of others alone."""

    @property
    def guards(self) -> Guards:
        """Which features withhold some of their tasks from being retried, and how they are asked."""

    @property
    def listening(self) -> bool:
        """Whether hints arrive; where they do not, work is found by looking for it."""

    @property
    def meter(self) -> Meter:
        """How calls of this store went, in this process."""

    async def open(self) -> None:
        """Checks that the store is reachable and its schema is one that this code understands."""

    async def close(self) -> None: ...

    def abandon(self, *, inherited: bool = False) -> None:
        """Lets go of everything without an event loop: the one that it was opened on is gone. ``inherited``: what is
        open is another process's, which goes on using it."""

    async def apply(self, commit: Commit, *, again: bool = False, in_parts: bool = False) -> Applied:
        """Applies everything of a Commit, and what features add to its moves, in one transaction.

        ``again``: the answer to an earlier try was lost; what landed then counts as landed now. ``in_parts``: its
        enqueues, which have no keys, are made while they are iterated, and may be sent in parts of the transaction.
        """

    async def cycle(self, commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
        """Applies a Commit, usually of settlements, and claims, in one transaction: the hot loop. ``again`` as in
        ``apply``."""

    async def renew(self, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]) -> set[UUID]:
        """Extends leases and stores progress, fenced by token; returns the ids that are no longer held."""

    async def tick(self, beat: Heartbeat) -> TickResult: ...

    async def expired(self, limit: int, feature: str | None = None) -> list[ExpiredLease]:
        """Returns leases that ran out: of tasks of this feature, else of those that belong to none. Whoever recovers
        them decides by the state machine and moves them, fenced by tokens."""

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]: ...

    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        """Does one bounded piece of a store's own housekeeping; returns how many rows it touched."""

    async def scrub(self) -> bool:
        """Removes what was erased from the files, too, as far as a store can do that. False while others are in the
        way; the next pruning does it then."""

    def transaction(self, settlement: Callable[[], Transition]) -> AbstractAsyncContextManager[Transaction]:
        """Opens a transaction of the store's own database that applies ``settlement()`` as its last statement."""

    def listen(self, on_wake: Callable[[Wake], None], queues: Sequence[str]) -> Callable[[], None]:
        """Starts sending hints about these queues to the callback, until the returned function or ``close`` is called.
        Hints about other queues may come along."""
