"""The port: what a store must be able to do for workers and producers, and with its reads, what a ``Store`` is. Stores
pass ``redrive_kit.conformance``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, Self
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
    from redrive.kernel.machine import ExpiredLease
    from redrive.kernel.reactions import Reactions
    from redrive.kernel.retry_guard import Guards
    from redrive.kernel.series import Meter, TallySheet
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
    tables: bool = True  # it speaks SQL (``Sql``): tables of features, rows of them in a Commit, handlers' transactions


@dataclass(slots=True, frozen=True)
class ClaimRequest:
    """A claim: up to ``count`` ready tasks of ``queues``, the first queue drained first; within one by priority, the
    smallest number first, then in the order they joined it.

    ``handles`` restricts it to the kinds named (others are set aside for whoever handles them, and keep their order);
    ``only`` takes tasks of one kind, to fill up a bulk handler. What may not start now (its queue or kind is paused,
    its kind's limit is reached, its circuit is open and no probe is due) is passed by, and costs later claims nothing.
    A task of a paused group is parked when it is met: paused by ``group:NAME``.
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


MOST_PROMOTED = 1000  # tasks that one tick, or the end of a group's pause, brings back to their queues


@dataclass(slots=True)
class TickResult:
    """What a heartbeat returns: duties this worker now has, its tasks to cancel, seconds until something is due.

    A duty goes to one worker of the fleet per interval. ``recover`` and ``recover:FEATURE`` are given out only while a
    lease has run out; ``cron`` without being asked for, when a schedule is due or was fired by a clock that was ahead.
    ``next_due`` is about delayed tasks, schedules, kinds whose rate lets one start later, and open circuits; 0 means
    that more than ``MOST_PROMOTED`` could be brought back."""

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

    @property
    def sql(self) -> Sql:
        """What it can do besides where it speaks SQL (``Capabilities.tables``); else a ``NoSql``, which refuses."""

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
        """Applies everything of a Commit, and what features add to its moves, in one transaction: in the order of its
        fields, but for documents (``puts``), which come last.

        A move whose task is not in one of ``Transition.origins``, whose token is not the task's (``Rule.fenced``),
        whose lease has not run out (``expired``), or whose failure is not the one that was ``seen``, changes nothing
        and is reported lost. A task that is named twice moves once, and is not lost. Which state a move leads to,
        ``machine.lands`` says; what it does to attempts, deaths and error fields, its ``Rule`` does. Each move by an
        ``actor`` leaves an audit row (``audit.action_of``). A task that is asked for by an idempotency key that names
        the same work (kind, queue and payload, as values) is answered with that one, other work with a conflict.

        ``again``: the answer to an earlier try was lost; what landed then counts as landed now: tasks by their ids,
        moves by their tokens, for a day at least, also after the task is gone. ``in_parts``: its enqueues, which have
        no keys, are made while they are iterated, and may be sent in parts of the transaction.
        """

    async def cycle(self, commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
        """Applies a Commit, usually of settlements, and claims, in one transaction: the hot loop. What the Commit
        released can be claimed by it. ``again`` as in ``apply``."""

    async def renew(self, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]) -> set[UUID]:
        """Extends leases and stores progress, fenced by token; returns the ids that are no longer held. A lease that
        ran out is held until somebody takes it; one that was ended (``end_leases``) and is renewed before is the
        worker's again, as if nothing had been."""

    def listen(self, on_wake: Callable[[Wake], None], queues: Sequence[str]) -> Callable[[], None]:
        """Starts sending hints about these queues to the callback, until the returned function or ``close`` is called.
        Hints about other queues may come along."""

    # -- duties ------------------------------------------------------------------------------------------------------

    async def tick(self, beat: Heartbeat) -> TickResult:
        """Notes that a worker is there, brings tasks whose time has come to the tails of their queues in the order
        they were due, at most ``MOST_PROMOTED``, and gives out duties. A process that takes a name over is seen by its
        second tick at the latest; a name that only ticks does not beat any more."""

    async def expired(self, limit: int, feature: str | None = None) -> list[ExpiredLease]:
        """Returns leases that ran out, those first that did so first: of tasks of this feature, else of those that
        belong to none. Whoever recovers them decides by the state machine and moves them, fenced by tokens. ``deaths``
        is None unless the lease is of a worker that beats; ``cut_offs`` is None unless it was ended with a fleet that
        may have been cut off, and was not renewed since."""

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        """Returns the store's time, and schedules whose next run is due, or that a clock ahead of it has fired."""

    async def circuits(self) -> list[CircuitRow]:
        """Returns the circuits of all kinds that have one, open or not."""

    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        """Does one bounded piece of a store's own housekeeping; returns how many rows it touched, 0 where it knows no
        such duty, or has no need of it. By name:

        - ``prune`` removes what is past its ``keep``, and nothing that a live task needs. Totals of finished tasks
          stay;
        - ``names`` forgets kinds in queues that no application has declared and that have had no live task for
          ``keep.name_days``: their places among the bounded are free, and cancelled tasks of them count no more;
        - ``recount`` counts the running tasks of limited kinds anew, and returns by how much the counters were wrong;
        - ``series`` adds up what ticks have sent (``Heartbeat.sheet``), and a look at how much waits;
        - ``fold`` adds up totals that are kept in parts, ``promote`` does a tick's promotions in all queues,
          ``partitions`` makes and drops those of history: for stores that need them."""

    async def scrub(self) -> bool:
        """Removes what was erased from the files, too, as far as a store can do that. False while others are in the
        way; the next pruning does it then."""

    # -- who is alive ------------------------------------------------------------------------------------------------

    async def beat(self, beat: Beat) -> Heard:
        """Notes that a worker lives. One that comes two beats late, or after it was declared dead, begins anew: since
        then it has beaten without a gap. Another process under its name is another worker, which was not asked to end
        and did not claim what was claimed before it began (``age``)."""

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
