"""Implements the port on PostgreSQL: each verb is one call of a SQL function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self
from uuid import UUID

from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Diagnosis
from redrive.kernel.feature import Feature
from redrive.kernel.figures import Figures
from redrive.kernel.machine import ExpiredLease, Transition
from redrive.kernel.ports.reads import NO_CAPS
from redrive.kernel.ports.sql import Transaction
from redrive.kernel.ports.store import (
    Beat,
    Capabilities,
    ClaimRequest,
    Cycle,
    Dead,
    Gone,
    Heard,
    Heartbeat,
    Silent,
    TickResult,
    Wake,
)
from redrive.kernel.retention import DEFAULTS, Retention
from redrive.stores.features import Features
from redrive.stores.loops import LoopStores
from redrive.stores.metered import metered
from redrive.stores.postgres.apply import commit_patiently
from redrive.stores.postgres.cycle import Cycles, UnansweredClaims
from redrive.stores.postgres.diagnose import answer, diagnose, diagnose_briefly, figures, overdue
from redrive.stores.postgres.enqueue import Enqueues
from redrive.stores.postgres.listen import Listener
from redrive.stores.postgres.migrate import PostgresMigrations
from redrive.stores.postgres.pool import Pool, fetch, value
from redrive.stores.postgres.reads import Reads
from redrive.stores.postgres.scan_positions import ScanPositions
from redrive.stores.postgres.settle import renew
from redrive.stores.postgres.tick import Ticks, beat
from redrive.stores.postgres.transaction import transaction
from redrive.stores.postgres.upkeep import Series, add_up, prune
from redrive.stores.schema import index_names
from redrive.stores.upkeep import add_up_in_pieces

MOST_DELTAS_PER_FOLD = 20_000


class PostgresStore(Reads, Series):
    """See the port, ``redrive.kernel.ports.store.Store``, for what each method promises."""

    def __init__(self, url: str, features: Sequence[Feature] = (), *, connections: int = 5) -> None:
        self.url = url
        self.features = Features(features, "postgres")
        self.pool = Pool(url, connections)
        self.meter = self.pool.meter
        self.migrations = PostgresMigrations(self.pool, features)
        self.positions = ScanPositions()
        self.ticks = Ticks(self.pool, self.features)
        self._enqueues = Enqueues(self.pool)
        self._unanswered = UnansweredClaims(self.pool, lambda moves: self.apply(Commit(transitions=moves)))
        self._cycles = Cycles(self.pool, self.features, self.positions, self._unanswered)
        self._listener: Listener | None = None
        self._loop_stores = LoopStores()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(notifies=not self.pool.pooled)

    @property
    def sql(self) -> Self:
        return self

    @property
    def listening(self) -> bool:
        return self._listener is not None and self._listener.alive

    async def open(self) -> None:
        await self.migrations.check()

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        await self.pool.close()

    def abandon(self, *, inherited: bool = False) -> None:
        self.pool.abandon(inherited=inherited)

    def listen(self, on_wake: Callable[[Wake], None], queues: Sequence[str]) -> Callable[[], None]:
        if self._listener is None:
            self._listener = Listener(self.pool, self.positions)
        return self._listener.add(on_wake, queues)

    async def diagnose(self, *, brief: bool = False) -> Diagnosis:
        if brief:
            return await diagnose_briefly(self.pool)
        return await diagnose(self.pool, index_names("redrive.stores.postgres"))

    async def answer(self, query: str, seconds: float) -> Any:
        return await answer(self.pool, query, seconds)

    async def figures(self) -> Figures:
        return await figures(self.pool)

    async def overdue(
        self, ages: Mapping[str, float], but: Sequence[str] = (), most: Mapping[str, int] = NO_CAPS
    ) -> dict[str, int]:
        return await overdue(self.pool, ages, but, most) if ages else {}

    # -- writing ---------------------------------------------------------------------------------------------------

    async def apply(self, commit: Commit, *, again: bool = False, in_parts: bool = False) -> Applied:
        if commit.only_enqueues:  # measured where callers that share a statement have come together
            return Applied(enqueued=await self._enqueues.enqueue(commit.enqueues, again=again, in_parts=in_parts))
        return await self._commit(commit, again)

    @metered("apply")
    async def _commit(self, commit: Commit, again: bool) -> Applied:
        return await commit_patiently(self.pool, commit, self.features, again=again)

    @metered("cycle")
    async def cycle(self, commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
        await self._unanswered.give_back()
        return await self._cycles.cycle(commit, want, again)

    @metered("renew")
    async def renew(self, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]) -> set[UUID]:
        return await renew(self.pool, leases, lease, progress)

    @metered("tick")
    async def tick(self, beat: Heartbeat) -> TickResult:
        await self._unanswered.give_back()
        return await self.ticks.tick(beat)

    async def expired(self, limit: int, feature: str | None = None) -> list[ExpiredLease]:
        return await self.ticks.expired(limit, feature)

    def on_this_loop(self) -> Self:
        found = self._loop_stores.get(lambda: type(self)(self.url, connections=1))
        assert isinstance(found, type(self))
        return found

    async def beat(self, given: Beat) -> Heard:
        return await beat(self.pool, given)

    async def end_leases(self, of: Silent | Gone) -> Mapping[str, Dead]:
        if isinstance(of, Silent):
            rows = await fetch(self.pool, "end_silent", of.worker_id, of.by.dead_after_ms, of.by.lease_ms)
            return {row["worker"]: Dead(row["tasks"], row["cut_off"]) for row in rows}
        given = (of.process.host, of.process.pid, of.process.machine, of.process.birth)
        ended = await value(self.pool, "end_gone", of.worker_id, *given)
        return {} if ended is None else {of.worker_id: Dead(ended)}

    async def mark_waiting(self, leases: Sequence[tuple[UUID, UUID]], waiting: bool) -> None:
        await value(self.pool, "mark_waiting", [id_ for id_, _ in leases], [token for _, token in leases], waiting)

    async def note_build(self, worker_id: str, build: str | None) -> None:
        await value(self.pool, "note_build", worker_id, build)

    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        match duty:
            case "names":
                return int(await value(self.pool, duty, keep.name_days * 86_400))
            case "recount":
                return int(await value(self.pool, duty) or 0)
            case "fold":
                return int(await value(self.pool, duty, MOST_DELTAS_PER_FOLD))
            case "promote":
                return await self.ticks.promote_everywhere()
            case "partitions":
                return int(await value(self.pool, duty, keep.history_days))
            case "series":
                return await add_up_in_pieces(lambda: add_up(self.pool))
            case "prune":
                return await prune(self.pool, keep, self.features)
        return 0

    async def scrub(self) -> bool:
        """Does nothing: old versions of rows are the server's, and vacuum removes them in its own time."""
        return True

    def transaction(self, settlement: Callable[[], Transition]) -> AbstractAsyncContextManager[Transaction]:
        return transaction(self.pool, self.features, settlement)
