"""Implements the port on SQLite: each verb is one request to the writing or the reading thread."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Self, TypeVar
from uuid import UUID

from redrive.errors import StoreUnavailable
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Diagnosis
from redrive.kernel.feature import Feature
from redrive.kernel.figures import Figures
from redrive.kernel.machine import ExpiredLease, Transition
from redrive.kernel.ports.reads import NO_CAPS
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
from redrive.kernel.series import Meter
from redrive.stores.features import Features
from redrive.stores.metered import metered
from redrive.stores.schema import index_names
from redrive.stores.sqlite import apply, tick
from redrive.stores.sqlite.apply import cycle
from redrive.stores.sqlite.bad_rows import about_a_row, set_aside, set_aside_expired
from redrive.stores.sqlite.connection_thread import ConnectionThread
from redrive.stores.sqlite.diagnose import answer, diagnose, figures, overdue
from redrive.stores.sqlite.enqueue import enqueue_on, enqueue_with
from redrive.stores.sqlite.listen import Listeners
from redrive.stores.sqlite.migrate import SqliteMigrations
from redrive.stores.sqlite.reads import Reads
from redrive.stores.sqlite.session import Session
from redrive.stores.sqlite.settle import renew, settle_or_raise
from redrive.stores.sqlite.steady import SinceBoot, since_boot
from redrive.stores.sqlite.transaction import SqliteTransaction, inside, transaction
from redrive.stores.sqlite.upkeep import Series, add_up, empty_log, lapse_names, prune, prune_feature
from redrive.stores.sqlite.url import parse
from redrive.stores.sqlite.writer import Writer
from redrive.stores.upkeep import add_up_in_pieces, prune_features, prune_in_pieces

T = TypeVar("T")

SCRUB_TRIES = 4


class SqliteStore(Reads, Series):
    """See the port, ``redrive.kernel.ports.store.Store``, for what each method promises.

    May be used from several event loops and threads at once. ``clock`` is the time by which everything is
    decided; tests replace it.
    """

    capabilities = Capabilities(any_loop=True)

    def __init__(self, url: str, features: Sequence[Feature] = ()) -> None:
        self.url = url
        self.meter = Meter()
        self.features = Features(features, "sqlite")
        self.location = parse(url)
        self.clock: Callable[[], float] = time.time
        self._listeners = Listeners()
        self.since_boot: SinceBoot = since_boot
        self._writer = Writer(self.location, self._now, self._listeners, self.features, self._since_boot)
        self._reader = ConnectionThread("redrive-sqlite-read", self.location, self._now, self.features)
        self.migrations = SqliteMigrations(self._writer, features)

    @property
    def sql(self) -> Self:
        return self

    @property
    def listening(self) -> bool:
        return self._listeners.listening

    async def open(self) -> None:
        """Opens the file and brings it up to date; one that is too new is refused."""
        await self.migrations.up()
        await self.migrations.check()

    async def close(self) -> None:
        self._listeners.clear()
        # The writer last: whoever closes last leaves one clean file behind.
        await self._reader.close()
        await self._writer.close()

    def abandon(self, *, inherited: bool = False) -> None:
        """Does nothing: nothing here belongs to an event loop, and a fork is seen to by the threads' own means."""

    def listen(self, on_wake: Callable[[Wake], None], queues: Sequence[str]) -> Callable[[], None]:
        leave = self._listeners.add(on_wake)
        self._writer.ring()
        return leave

    async def diagnose(self, *, brief: bool = False) -> Diagnosis:
        path, indexes = self.location.path, index_names("redrive.stores.sqlite")
        found = await self.read(lambda session: diagnose(session, path, indexes, brief))
        found.identity = await self._identity()
        return found

    async def answer(self, query: str, seconds: float) -> Any:
        return await asyncio.to_thread(answer, self.location, query, seconds)

    async def figures(self) -> Figures:
        return await self.read(figures)

    async def overdue(
        self, ages: Mapping[str, float], but: Sequence[str] = (), most: Mapping[str, int] = NO_CAPS
    ) -> dict[str, int]:
        return await self.read(lambda session: overdue(session, ages, but, most)) if ages else {}

    async def _identity(self) -> str:
        if self.location.memory:
            return f"memory/{id(self)}"
        path = self.location.path
        try:
            found = await asyncio.to_thread(os.stat, path)
        except FileNotFoundError:
            gone = f"SQLite file {path} is not there any more: who has it open goes on with what was moved or removed"
            raise StoreUnavailable(gone, hint="stop all that uses it, put it back, and start again") from None
        return f"file/{found.st_dev}/{found.st_ino}"

    # -- writing ---------------------------------------------------------------------------------------------------

    @metered("apply")
    async def apply(self, commit: Commit, *, again: bool = False, in_parts: bool = False) -> Applied:
        if commit.only_enqueues and not again:
            return Applied(enqueued=await self._writer.enqueue(list(commit.enqueues)))
        try:
            return await self._writer.run(lambda session: apply.apply(session, commit, again=again))
        except Exception as error:
            if not commit.transitions or not about_a_row(error):
                raise
        return await self._writer.run(lambda session: apply.apply(session, commit, again=again, careful=True))

    @metered("cycle")
    async def cycle(self, commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
        def work(session: Session) -> Cycle:
            return cycle(session, commit, want, again)

        return await (self._writer.run(work) if want is None else self._past_bad_rows(work, want.queues))

    async def _past_bad_rows(self, work: Callable[[Session], T], queues: Sequence[str]) -> T:
        """Returns the answer of a claim or a tick; if it is refused, asks once more without the rows that it cannot
        work with."""
        try:
            return await self._writer.run(work)
        except Exception as error:
            if not about_a_row(error) or not await self._writer.run(lambda session: set_aside(session, queues)):
                raise
        return await self._writer.run(work)

    async def expired(self, limit: int, feature: str | None = None) -> list[ExpiredLease]:
        try:
            return await self.read(lambda session: tick.expired(session, limit, feature))
        except ValueError:
            await self._writer.run(set_aside_expired)
        return await self.read(lambda session: tick.expired(session, limit, feature))

    @metered("renew")
    async def renew(self, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]) -> set[UUID]:
        return await self._writer.run(lambda session: renew(session, leases, lease, progress))

    @metered("tick")
    async def tick(self, beat: Heartbeat) -> TickResult:
        return await self._past_bad_rows(lambda session: tick.tick(session, beat), beat.queues)

    def on_this_loop(self) -> Self:
        """Returns itself: it serves all loops, and the file has one writer, whoever asks."""
        return self

    async def beat(self, given: Beat) -> Heard:
        return await self._writer.run(lambda session: tick.beat(session, given))

    async def end_leases(self, of: Silent | Gone) -> Mapping[str, Dead]:
        return await self._writer.run(lambda session: tick.end_leases(session, of))

    async def mark_waiting(self, leases: Sequence[tuple[UUID, UUID]], waiting: bool) -> None:
        await self._writer.run(lambda session: tick.mark_waiting(session, leases, waiting))

    async def note_build(self, worker_id: str, build: str | None) -> None:
        await self._writer.run(lambda session: tick.note_build(session, worker_id, build))

    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        match duty:
            case "prune":
                return await self._prune(keep)
            case "series":
                return await add_up_in_pieces(lambda: self._writer.run(add_up))
            case "recount":
                return await self._writer.run(apply.recount_limited)
            case "names":
                return await self._writer.run(lambda session: lapse_names(session, keep))
        return 0

    async def scrub(self, tries: int = SCRUB_TRIES) -> bool:
        """Empties the write-ahead log, which has copies of pages as they were, into the file."""
        if self.location.memory:
            return True
        for _ in range(tries):
            if await self._reader.run(empty_log):
                return True
        return False

    async def _prune(self, keep: Retention) -> int:
        removed = await prune_in_pieces(lambda: self._writer.run(lambda session: prune(session, keep)))
        removed += await prune_features(
            keep.features, lambda rule: self._writer.run(lambda session: prune_feature(session, rule))
        )
        # What went, and what an erasure could not get out of the log. Once: writers wait while it waits for a reader.
        await self.scrub(tries=1)
        return removed

    def transaction(self, settlement: Callable[[], Transition]) -> AbstractAsyncContextManager[SqliteTransaction]:
        """Opens a transaction. While it is open every other writer waits: do slow work before it, not inside it."""
        return transaction(self._writer, lambda: partial(settle_or_raise, transition=settlement()))

    async def go_by(self, clock: Callable[[], float]) -> None:
        """Decides everything by this clock from now on, statements of features too: for tests, of a database in memory,
        which has one connection."""
        self.clock = clock
        await self._writer.run(lambda session: session.connection.create_function("unixepoch", 0, lambda: int(clock())))

    # -- plumbing --------------------------------------------------------------------------------------------------

    @metered("read")
    async def read(self, look: Callable[[Session], T]) -> T:
        if not self.location.memory:
            return await self._reader.run(look)
        # A database in memory has one connection; a look from inside a transaction uses that transaction.
        current = inside(self._writer)
        return await (self._writer.run(look) if current is None else current.step(look))

    def _now(self) -> float:
        return self.clock()

    def _since_boot(self) -> tuple[str, float] | None:
        # A clock that a test moves has nothing to do with the machine's.
        return None if self.clock is not time.time and self.since_boot is since_boot else self.since_boot()


__all__ = ["SqliteStore", "SqliteTransaction", "enqueue_on", "enqueue_with"]
