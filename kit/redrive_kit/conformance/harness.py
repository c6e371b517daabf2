"""Gives the suite what it needs of a store besides the port: a second store, a clock to move, counts of rows and
work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import astuple, dataclass, field, replace
from datetime import datetime
from typing import Any, TypedDict, Unpack
from uuid import UUID

import pytest

from redrive.errors import ErrorCode
from redrive.ids import new_id
from redrive.kernel.applied import Applied
from redrive.kernel.audit import AuditFilter
from redrive.kernel.backoff import Backoff
from redrive.kernel.commit import CancelRequest, Commit, Control, Hold, Limit, Target
from redrive.kernel.failure import failure
from redrive.kernel.failure_filter import FailureFilter
from redrive.kernel.feature import Feature, Need
from redrive.kernel.machine import Event, Lease, Policy, Transition, settle
from redrive.kernel.outcome import Cancel, Completed, Expired, Fail, Failed, Outcome, Released, Retry, Snooze
from redrive.kernel.ports.reads import get_task
from redrive.kernel.ports.store import (
    Beat,
    ClaimRequest,
    Cycle,
    Heard,
    Heartbeat,
    Judgement,
    Process,
    Query,
    Store,
    TickResult,
)
from redrive.kernel.task import AuditRow, Claimed, DeadLetter, NewTask, State, Task
from redrive_kit.conformance.probe import PROBE

Totals = dict[tuple[str, str, State], int]
POLICY = Policy(backoff=Backoff(10.0, 10.0))
LEASE = 60.0
BEAT, DEAD_AFTER = 4.0, 15.0
JUDGEMENT = Judgement(DEAD_AFTER, LEASE)
FEATURES = (PROBE,)


@dataclass(slots=True)
class Cost:
    """What a block asked of the database."""

    statements: list[str] = field(default_factory=list)
    rows: int = 0
    """Rows and index entries visited, in the store's own unit: compare it only with itself."""
    scans: list[str] = field(default_factory=list)
    """Tables that were read from one end to the other."""


class TaskOptions(TypedDict, total=False):
    """Fields of a new task; see ``NewTask``."""

    id: UUID
    queue: str
    payload: str | None
    priority: int
    max_attempts: int
    delay: float | None
    run_at: datetime | None
    timeout: float | None
    group: str | None
    scope: str | None
    trace_id: str | None
    idempotency_key: str | None
    feature: str | None
    facts: str | None
    join: UUID | None


class ClaimOptions(TypedDict, total=False):
    """Fields of a claim (see ``ClaimRequest``), and which store makes it."""

    store: Store | None
    worker: str
    queues: tuple[str, ...]
    lease: float
    handles: tuple[str, ...] | None
    only: str | None


class Harness(ABC):
    """What a store brings besides the port. Four methods are enough for the worker's part; what the further parts need
    skips their tests until a store's harness has it."""

    store: Store
    features: Sequence[Feature] = ()
    # False while a store has no more than the worker's part: tests then look through ``WorkerReads``, ``counts``,
    # ``timeline`` and ``audit`` alone.
    reads: bool = True

    # -- what each store brings ------------------------------------------------------------------------------------

    @abstractmethod
    async def another(self, features: Sequence[Feature] | None = None) -> Store:
        """Returns a second store object on the same data, as another process would have; closed with the harness. It
        knows the same features, unless others are given."""

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Lets time pass for the data, and for every store of this harness."""

    @abstractmethod
    async def tally(self) -> Totals:
        """Returns totals by counting rows: the truth that maintained totals are held against."""

    @abstractmethod
    async def close(self) -> None: ...

    # -- what the suites of cost need ------------------------------------------------------------------------------

    async def stock(self, count: int, state: State, *, kind: str, queue: str = "default") -> None:
        """Puts many rows of a state where they belong, totals included, faster than the port would."""
        pytest.skip("this harness has no way to stock a store")

    async def stock_causes(self, count: int) -> None:
        """Puts many causes there, with an hour each, by which nothing is failed."""
        pytest.skip("this harness has no way to stock a store")

    def measure(self, store: Store) -> AbstractAsyncContextManager[Cost]:
        """Counts what ``store`` sends and visits inside the block."""
        pytest.skip("this harness does not measure")

    # -- what the suites of transactions and features need, of stores that speak SQL -------------------------------

    async def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Runs a statement of the application's own, outside of any task."""
        pytest.skip("this store does not speak SQL")

    def as_argument(self, value: UUID) -> object:
        """Returns an id as an argument of a statement."""
        return value

    def needs(self, capability: Need) -> None:
        """Skips the test of a store that cannot do this."""
        if not getattr(self.store.capabilities, capability):
            pytest.skip(f"this store has no {capability}")

    # -- making tasks ----------------------------------------------------------------------------------------------

    def new(self, kind: str = "A", **options: Unpack[TaskOptions]) -> NewTask:
        given: dict[str, Any] = {"queue": "default", "payload": '{"x":1}', "max_attempts": 3, **options}
        return NewTask(given.pop("id", None) or new_id(), kind, **given)

    async def enqueue(self, kind: str = "A", **options: Unpack[TaskOptions]) -> UUID:
        applied = await self.store.apply(Commit(enqueues=[self.new(kind, **options)]))
        return applied.enqueued[0].id

    async def enqueue_many(self, count: int, kind: str = "A", **options: Unpack[TaskOptions]) -> list[UUID]:
        tasks = [self.new(kind, **options) for _ in range(count)]
        return [answer.id for answer in (await self.store.apply(Commit(enqueues=tasks))).enqueued]

    # -- working on them -------------------------------------------------------------------------------------------

    def want(self, count: int = 1, **options: Unpack[ClaimOptions]) -> ClaimRequest:
        return ClaimRequest(
            worker_id=options.get("worker", "w1"),
            queues=options.get("queues", ("default",)),
            count=count,
            lease=options.get("lease", LEASE),
            handles=options.get("handles"),
            only=options.get("only"),
        )

    async def claim(self, count: int = 1, **options: Unpack[ClaimOptions]) -> list[Claimed]:
        store = options.get("store") or self.store
        return (await store.cycle(Commit(), self.want(count, **options))).claimed

    async def claim_one(self, **options: Unpack[ClaimOptions]) -> Claimed:
        claimed = await self.claim(1, **options)
        assert len(claimed) == 1, "a task was ready, but the claim came back empty"
        return claimed[0]

    async def running(self, kind: str = "A", **options: Unpack[TaskOptions]) -> Claimed:
        """Returns a new task, claimed; nothing else may be waiting in its queue."""
        await self.enqueue(kind, **options)
        return await self.claim_one(queues=(options.get("queue", "default"),))

    async def failed(self, kind: str = "A", **options: Unpack[TaskOptions]) -> UUID:
        """Returns a new task, failed for good."""
        claimed = await self.running(kind, **options)
        assert await self.settle(claimed, TERMINAL)
        return claimed.id

    async def cancelled(self, kind: str = "A", **options: Unpack[TaskOptions]) -> UUID:
        task_id = await self.enqueue(kind, **options)
        assert await self.operate(Event.CANCEL, task_id)
        return task_id

    def decide(self, claimed: Claimed, outcome: Outcome, worker: str = "w1") -> Transition:
        attempt, most = claimed.attempt, claimed.max_attempts
        lease = Lease(claimed.id, claimed.token, attempt, most, worker, 12.5, claimed.feature, claimed.join)
        return settle(lease, outcome, POLICY, 0.5)

    async def settle(
        self, claimed: Claimed, outcome: Outcome, *, store: Store | None = None, again: bool = False
    ) -> bool:
        """Settles a task; returns whether that landed."""
        cycle = await (store or self.store).cycle(
            Commit(transitions=[self.decide(claimed, outcome)]), None, again=again
        )
        assert cycle.lost <= {claimed.id}
        return not cycle.lost

    async def settle_many(self, pairs: Sequence[tuple[Claimed, Outcome]], want: ClaimRequest | None = None) -> Cycle:
        return await self.store.cycle(
            Commit(transitions=[self.decide(claimed, outcome) for claimed, outcome in pairs]), want
        )

    async def renew(
        self,
        claimed: Claimed,
        lease: float = LEASE,
        progress: Mapping[UUID, str] | None = None,
        store: Store | None = None,
    ) -> bool:
        """Renews a lease; returns whether it was not lost."""
        lost = await (store or self.store).renew([(claimed.id, claimed.token)], lease, progress or {})
        assert lost <= {claimed.id}
        return not lost

    async def tick(
        self,
        worker: str = "w1",
        *,
        store: Store | None = None,
        stopping: bool = False,
        running: int = 0,
        **duties: float,
    ) -> TickResult:
        beat = Heartbeat(worker, "host", 1, ("default",), 4, running, "0", duties, stopping)
        return await (store or self.store).tick(beat)

    async def beat(
        self,
        worker: str = "w1",
        *,
        pid: int = 1,
        birth: int | None = None,
        host: str = "host",
        machine: str = "boot",
        age: float = 0.0,
        store: Store | None = None,
        every: float = BEAT,
        judgement: Judgement = JUDGEMENT,
    ) -> Heard:
        process = Process(host, pid, None if birth is None else machine, birth)
        beat = Beat(worker, process, ("default",), 4, 0, "0", age, 1.5, every, judgement)
        return await (store or self.store).beat(beat)

    async def let_beat(self, seconds: float, *workers: str) -> None:
        """Lets time pass while these workers beat and all others are silent."""
        left = seconds
        while left > 0:
            await self.advance(min(BEAT, left))
            left -= BEAT
            for worker in workers:
                await self.beat(worker)

    async def look_for_expired(self, store: Store | None = None, limit: int = 50) -> list[Transition]:
        """Returns what recovery would do: of plain tasks, then of each feature that the store knows."""
        looked = store or self.store
        found = [
            lease for name in (None, *looked.features.reactions.names) for lease in await looked.expired(limit, name)
        ]
        return [settle(lease, Expired(), POLICY, 0.5) for lease in found]

    async def recover(self, store: Store | None = None) -> set[UUID]:
        """Does one pass of recovery; returns the ids that were taken back."""
        moves = await self.look_for_expired(store)
        if not moves:
            return set()
        applied = await (store or self.store).apply(Commit(transitions=moves))
        return {move.task_id for move in moves} - applied.lost

    # -- operating -------------------------------------------------------------------------------------------------

    async def operate(
        self, event: Event, *ids: UUID, actor: str = "ann", reason: str | None = "because", store: Store | None = None
    ) -> bool:
        """Does an operator's action on tasks; returns whether all of them moved."""
        moves = [operator_move(event, task_id, actor, reason) for task_id in ids]
        applied = await (store or self.store).apply(Commit(transitions=moves))
        return not applied.lost

    async def control(self, *controls: Control, store: Store | None = None) -> Applied:
        return await (store or self.store).apply(Commit(controls=controls))

    async def fold(self) -> None:
        """Adds up all totals that a store keeps in parts."""
        while await self.store.upkeep("fold"):
            pass

    async def hold(self, target: Target, name: str, on: bool = True) -> Applied:
        return await self.control(Hold(target, name, on, "ann", "because"))

    async def limit(self, kind: str, concurrency: int | None = None, rate_ms: int | None = None) -> None:
        await self.control(Limit(kind, concurrency, rate_ms))

    async def ask_to_cancel(self, task_id: UUID) -> bool:
        applied = await self.control(CancelRequest(task_id, "ann", "because"))
        return not applied.lost

    # -- looking ---------------------------------------------------------------------------------------------------

    async def task(self, task_id: UUID) -> Task:
        found = await get_task(self.store, task_id)
        assert found is not None, f"task {task_id} is lost"
        return found

    async def state(self, task_id: UUID) -> State:
        return (await self.task(task_id)).state

    async def audit(self, limit: int = 100, **which: Any) -> list[AuditRow]:
        return await self.store.audit(AuditFilter(**which), limit=limit)

    async def letters(self, task_id: UUID) -> list[DeadLetter]:
        """Returns the dead letters of a task, oldest first."""
        timeline = await self.store.timeline(task_id)
        assert timeline is not None, f"task {task_id} is lost"
        return timeline.dead_letters

    async def totals(self) -> Totals:
        return {(c.queue, c.kind, c.state): c.n for c in await self.store.counts() if c.n}

    async def count(self, state: State) -> int:
        return sum(n for (_, _, found), n in (await self.totals()).items() if found is state)

    async def check_totals(self) -> None:
        """Checks that maintained totals are what counting rows would say (invariant 8)."""
        assert await self.totals() == await self.tally()
        if self.reads:
            await self._check_totals_of_failed()

    async def _check_totals_of_failed(self) -> None:
        failed = await self.store.failed(FailureFilter(), limit=1_000_000)
        real = Counter(
            (t.kind, t.queue, t.group, t.error_code, t.error_reason, t.failure_type, t.dead_reason, t.error_fingerprint)
            for t in failed
        )
        kept = {astuple(count)[:-1]: count.n for count in await self.store.failed_counts()}
        assert kept == dict(real)
        letters = Counter(
            (letter.queue, letter.kind) for letter in await self.store.dead_letters(Query(limit=1_000_000))
        )
        assert {(one.queue, one.kind): one.n for one in await self.store.letter_counts() if one.n} == dict(letters)
        alone: dict[str, Counter[str]] = {}
        for (kind, queue, group, code, _, type_, reason, cause), n in real.items():
            for name, value in (
                ("total", ""),
                ("kind", kind),
                ("queue", queue),
                ("group", group or ""),
                ("code", code),
                ("type", type_),
                ("reason", reason),
                ("cause", cause),
            ):
                alone.setdefault(name, Counter())[value or ""] += n
        sums = await self.store.failed_sums(1_000_000)
        assert {name: found for name, found in sums.items() if found} == alone


_TARGETS = {
    Event.CANCEL: State.CANCELLED,
    Event.PAUSE: State.PAUSED,
    Event.RESUME: State.QUEUED,
    Event.REDRIVE: State.QUEUED,
}


def operator_move(event: Event, task_id: UUID, actor: str | None = "ann", reason: str | None = "because") -> Transition:
    return Transition(task_id, event, _TARGETS[event], actor=actor, reason=reason)


def failing(message: str = "boom") -> Failed:
    """Returns a failure that is retried while attempts remain."""
    return Failed(failure(ErrorCode.EXECUTION_FAILED, "unknown_exception", message, stack=f"Traceback: {message}"))


def failing_with(summary: dict[str, Any], message: str = "boom") -> Failed:
    """Returns a failure of one and the same cause, whatever it says, and what may be shown of it."""
    cause = failing(message).failure
    return Failed(replace(cause, summary=summary, fingerprint="0123456789abcdef"))


TERMINAL = Fail("TASK_PRECONDITION_FAILED", "the shot is locked")
RETRY_AT_ONCE = Retry("again", after=0)


# Every way an attempt can end, by name.
SETTLED: dict[str, tuple[Outcome, State]] = {
    "complete": (Completed('{"ok":true}'), State.COMPLETED),
    "fail": (TERMINAL, State.FAILED),
    "retry": (failing(), State.DELAYED),
    "retry-at-once": (Retry("again", after=0), State.QUEUED),
    "snooze": (Snooze(30, state={"page": 2}), State.DELAYED),
    "snooze-at-once": (Snooze(0), State.QUEUED),
    "release": (Released(), State.QUEUED),
    "cancel": (Cancel("not wanted"), State.CANCELLED),
}
REQUEUED = ("retry", "retry-at-once", "snooze", "snooze-at-once", "release")
