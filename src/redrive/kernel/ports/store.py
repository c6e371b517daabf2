"""The port: what a store must be able to do for workers and producers, and with its reads, what a ``Store`` is. Stores
pass ``redrive_kit.conformance``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, Self
from uuid import UUID

from redrive.kernel.ports.liveness import Beat, Dead, Gone, Heard, Judgement, Neighbour, Process, Silent
from redrive.kernel.ports.reads import MOST_ENTRIES, ReadStore, WorkerReads
from redrive.kernel.ports.sql import Sql
from redrive.kernel.reads import (
    CauseQuery,
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

if TYPE_CHECKING:
    from redrive.kernel.applied import Applied
    from redrive.kernel.circuit import CircuitRow
    from redrive.kernel.commit import Commit
    from redrive.kernel.machine import ExpiredLease, Transition
    from redrive.kernel.reactions import Reactions
    from redrive.kernel.retry_guard import Guards
    from redrive.kernel.series import TallySheet
    from redrive.kernel.spread import Meter
    from redrive.kernel.task import Claimed, State

# What reads ask for and return is part of the port, for those who have a store.
__all__ = [
    "MOST_ENTRIES",
    "Beat",
    "Capabilities",
    "CauseQuery",
    "CauseRow",
    "ClaimRequest",
    "Count",
    "Cycle",
    "Dead",
    "Gone",
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
    "ReadStore",
    "RetryCount",
    "ScheduleRow",
    "SchemaStatus",
    "Silent",
    "Store",
    "TickResult",
    "Transaction",
    "Wake",
    "WorkerLeases",
    "WorkerRow",
    "WorkerStore",
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


class KnownFeatures(Protocol):
    """The features that a process knows, as its stores do."""

    @property
    def reactions(self) -> Reactions:
        """Those that have tasks: those of others are left alone here."""

    @property
    def guards(self) -> Guards:
        """Which of them withhold some of their tasks from being retried, and how they are asked."""

    @property
    def erasing(self) -> Mapping[str, Sequence[str]]:
        """Those with tables, and the statements by which each forgets somebody."""

    @property
    def belonging(self) -> Sequence[str]:
        """Those of them that know tasks of somebody's which do not carry the scope themselves."""


class WorkerStore(WorkerReads, Protocol):
    """All that workers and producers ask: the hot loop, duties, who is alive. Every method is one transaction, or none
    at all."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def features(self) -> KnownFeatures: ...

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

    def on_this_loop(self) -> Self:
        """Returns a store on the same data for the running event loop, with one connection, which is closed at the end
        of that loop. Where one store serves all loops, it is the same one."""

    async def now(self) -> datetime:
        """Returns the time by which everything is decided."""

    # -- the hot loop ------------------------------------------------------------------------------------------------

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

    def transaction(self, settlement: Callable[[], Transition]) -> AbstractAsyncContextManager[Transaction]:
        """Opens a transaction of the store's own database that applies ``settlement()`` as its last statement."""

    def listen(self, on_wake: Callable[[Wake], None], queues: Sequence[str]) -> Callable[[], None]:
        """Starts sending hints about these queues to the callback, until the returned function or ``close`` is called.
        Hints about other queues may come along."""

    # -- duties ------------------------------------------------------------------------------------------------------

    async def tick(self, beat: Heartbeat) -> TickResult: ...

    async def expired(self, limit: int, feature: str | None = None) -> list[ExpiredLease]:
        """Returns leases that ran out: of tasks of this feature, else of those that belong to none. Whoever recovers
        them decides by the state machine and moves them, fenced by tokens."""

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]: ...

    async def circuits(self) -> list[CircuitRow]:
        """Returns the circuits of all kinds that have one, open or not."""

    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        """Does one bounded piece of a store's own housekeeping; returns how many rows it touched."""

    async def scrub(self) -> bool:
        """Removes what was erased from the files, too, as far as a store can do that. False while others are in the
        way; the next pruning does it then."""

    # -- who is alive ------------------------------------------------------------------------------------------------

    async def beat(self, beat: Beat) -> Heard: ...

    async def end_leases(self, of: Silent | Gone) -> Mapping[str, Dead]:
        """Ends the leases of workers that are silent, or of one whose process is gone, and returns these workers;
        recovery does the rest. Nobody is returned who was declared dead before."""

    async def mark_waiting(self, leases: Sequence[tuple[UUID, UUID]], waiting: bool) -> None:
        """Notes of tasks that their worker has not begun them and has them wait, or that it begins them now. If it dies
        meanwhile, that is none of their doing."""

    async def note_build(self, worker_id: str, build: str | None) -> None:
        """Notes which build of the application a worker runs: what fails on it from now on is known to be of that."""


class Store(WorkerStore, ReadStore, Protocol):
    """Where tasks live: what workers and producers ask of it, what operators read, and its schema."""

    @property
    def migrations(self) -> Migrations: ...

    @property
    def sql(self) -> Sql:
        """What it can do besides where it speaks SQL (``Capabilities.tables``); else a ``NoSql``, which refuses."""
