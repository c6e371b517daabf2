"""The PostgreSQL store: the port's verbs, each one call of a SQL function."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

from redrive.errors import LeaseLost, RedriveError, StoreUnavailable
from redrive.kernel.applied import Applied
from redrive.kernel.commit import Commit
from redrive.kernel.diagnosis import Diagnosis
from redrive.kernel.feature import Feature
from redrive.kernel.machine import ExpiredLease, Lease, Policy, Transition, settle
from redrive.kernel.outcome import Released
from redrive.kernel.retention import DEFAULTS, Retention
from redrive.kernel.store import (
    Capabilities,
    ClaimRequest,
    Cycle,
    Heartbeat,
    ScheduleRow,
    TickResult,
    Transaction,
    Wake,
)
from redrive.kernel.task import MAX_PAYLOAD_BYTES, Enqueued, NewTask
from redrive.stores.features import Features
from redrive.stores.postgres import codec
from redrive.stores.postgres.apply import apply
from redrive.stores.postgres.bad_rows import about_a_row, fail_row, past_bad_rows
from redrive.stores.postgres.diagnose import diagnose, vitals
from redrive.stores.postgres.enqueue import NotMade, enqueue, enqueue_in_parts
from redrive.stores.postgres.errors import IdTaken
from redrive.stores.postgres.listen import Listener
from redrive.stores.postgres.migrate import PostgresMigrations
from redrive.stores.postgres.pool import Connection, Pool, refusal
from redrive.stores.postgres.reads import Reads
from redrive.stores.postgres.scan_positions import ScanPositions
from redrive.stores.postgres.settle import keep_of, reacts, settlement_args
from redrive.stores.postgres.settle import settle as settle_rows
from redrive.stores.postgres.shared_enqueue import SharedEnqueue
from redrive.stores.rows import schedule as as_schedule
from redrive.stores.schema import index_names
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
PROMOTE_LIMIT = 1000
PRUNE_LIMIT = 5000
PRUNE_PIECES = 20
FOLD_LIMIT = 20_000
ENQUEUE_PATIENCE = 10.0
# Larger calls gain nothing from sharing a statement, and would make small ones wait.
SHARE_UP_TO = 100
LARGE_AT_ONCE = 2
T = TypeVar("T")
FULL_CHECK_EVERY = 60.0
MOST_SETS = 100
UNANSWERED_FOR = 60.0
ASK_EVERY = 1.0
CLOCKS_APART = 5.0  # how much two clocks may drift from each other while an answer is waited for


@dataclass(slots=True, frozen=True)
class Unanswered:
    """A claim that the server may have committed without our hearing of it, and until when to ask about it."""

    asked: float
    lease: float
    until: float


class PostgresStore(Reads):
    """See the port, ``redrive.kernel.store.Store``, for what each method promises."""

    def __init__(self, url: str, features: Sequence[Feature] = ()) -> None:
        self.url = url
        self.features = Features(features, "postgres")
        self.pool = Pool(url)
        self.migrations = PostgresMigrations(self.pool, features)
        self._remembered = ScanPositions()
        self._batcher = SharedEnqueue(self._enqueue_patiently)
        self._large = asyncio.Semaphore(LARGE_AT_ONCE)
        self._listener: Listener | None = None
        # By the queues that a tick looked at: several workers may share a store.
        self._checked: dict[tuple[str, ...], tuple[datetime | None, float]] = {}
        self._unanswered: dict[UUID, Unanswered] = {}
        self._next_ask = 0.0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(notifies=not self.pool.pooled)

    @property
    def reacting(self) -> tuple[str, ...]:
        return self.features.reactions.names

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
            self._listener = Listener(self.pool, self._remembered)
        return self._listener.add(on_wake, queues)

    # -- writing ---------------------------------------------------------------------------------------------------

    async def apply(self, commit: Commit, *, again: bool = False, in_parts: bool = False) -> Applied:
        if commit.only_enqueues:
            if len(commit.enqueues) <= SHARE_UP_TO and not again:
                return Applied(enqueued=await self._batcher.enqueue(commit.enqueues))
            # Large calls take turns: heartbeats and settles must find a connection free.
            send = self._enqueue_in_parts if in_parts else self._enqueue_once
            async with self._large:
                return Applied(enqueued=await self._patiently(lambda more: send(commit.enqueues, more), again))
        if commit.all_or_none:
            return await self._patiently(lambda more: self._apply_once(commit, more), again)
        return await self._apply_once(commit, again)

    async def _apply_once(self, commit: Commit, again: bool) -> Applied:
        try:
            return await self._applying(commit, again)
        except RedriveError as error:
            if not commit.transitions or not about_a_row(error):
                raise
        return await self._applying(commit, again, careful=self.pool.where)

    async def _applying(self, commit: Commit, again: bool, careful: str | None = None) -> Applied:
        def work(connection: Connection) -> Awaitable[Applied]:
            return apply(connection, commit, self.features, again=again, careful=careful)

        applied: Applied = await self.pool.run(work, atomic=True)
        return applied

    async def _enqueue_patiently(self, tasks: Sequence[NewTask]) -> list[Enqueued]:
        return await self._patiently(lambda again: self._enqueue_once(tasks, again), False)

    async def _enqueue_once(self, tasks: Sequence[NewTask], again: bool) -> list[Enqueued]:
        answers: list[Enqueued] = await self.pool.run(lambda connection: enqueue(connection, tasks, again))
        return answers

    async def _enqueue_in_parts(self, tasks: Sequence[NewTask], again: bool) -> list[Enqueued]:
        try:
            await self.pool.run(lambda connection: enqueue_in_parts(connection, tasks, again), atomic=True)
        except NotMade as error:
            raise error.cause from None
        return [Enqueued(task.id) for task in tasks]

    async def _patiently(self, attempt: Callable[[bool], Awaitable[T]], again: bool) -> T:
        """Ride out a short interruption. Ids are the producer's, so a repeat cannot add a task twice."""
        give_up = time.monotonic() + ENQUEUE_PATIENCE
        delay = 0.05
        while True:
            try:
                return await attempt(again)
            except (StoreUnavailable, IdTaken) as error:
                # Taken by an earlier try that was committed at this moment: the next one sees it.
                mine = again or not isinstance(error, IdTaken)
                if not mine or time.monotonic() + delay > give_up:
                    raise
            again = True
            await asyncio.sleep(delay)
            delay = min(delay * 2, 1.0)

    async def cycle(self, commit: Commit, want: ClaimRequest | None, *, again: bool = False) -> Cycle:
        if self._unanswered:
            await self._return_unanswered()
        if want is None:
            return await self._cycle(commit, None, again)
        tries = 0

        async def call() -> Cycle:
            nonlocal tries
            tries += 1
            # What is wrong with a row may show on its way to us, after the commit.
            return await self._cycle(commit, want, again or tries > 1)

        return await past_bad_rows(self.pool, want.queues, call, self.features)

    async def _cycle(self, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
        if commit.only_transitions and not reacts(commit.transitions):
            cycle = await self._claim(commit.transitions, want, again, self._send)
        else:
            cycle = await self._cycle_with_effects(commit, want, again)
        if any(task.payload and len(task.payload) > MAX_PAYLOAD_BYTES for task in cycle.claimed):
            await self._set_aside_large(cycle)
        return cycle

    async def _cycle_with_effects(self, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
        """The same in several statements of one transaction: what features say is worked out between them."""

        async def work(connection: Connection) -> Cycle:
            applied = await apply(connection, commit, self.features, again=again)
            if want is None:
                return Cycle(lost=applied.lost)
            cycle = await self._claim((), want, False, lambda args: connection.fetch(SQL["cycle"], *args))
            cycle.lost = applied.lost
            return cycle

        cycle: Cycle = await self.pool.run(work, atomic=True)
        return cycle

    async def _send(self, args: list[Any]) -> list[Any]:
        return await self._fetch("cycle", *args)

    async def _claim(
        self, settlements: Sequence[Transition], want: ClaimRequest | None, again: bool,
        send: Callable[[list[Any]], Awaitable[list[Any]]],
    ) -> Cycle:  # fmt: skip
        token = uuid4()
        args = settlement_args(settlements, again)
        keep = keep_of(args, settlements)
        if want is None:
            args += ["", token, 0.0, 0, [], None, None, [], [], [], [], [], keep]
            found = await send(args)
        else:
            started = time.monotonic()
            segments = self._remembered.segments(want.queues, started)
            args += [want.worker_id, token, want.lease, want.count, list(want.queues),
                     None if want.handles is None else list(want.handles), want.only, *segments, keep]  # fmt: skip
            try:
                found = await send(args)
            except BaseException:  # a cancellation too: the server may commit what nobody waits for any more
                self._unanswered[token] = Unanswered(started, want.lease, time.monotonic() + UNANSWERED_FOR)
                self._next_ask = 0.0
                raise
            self._learn(found, want, started)
        return _cycle_of(found, token)

    async def _set_aside_large(self, cycle: Cycle) -> None:
        """Payloads that were written past the limit, and are larger than they look on the disk."""
        for task in [task for task in cycle.claimed if task.payload and len(task.payload) > MAX_PAYLOAD_BYTES]:
            why = f"its payload is over the limit of {MAX_PAYLOAD_BYTES:,} bytes"
            fail = partial(fail_row, task_id=task.id, why=why, settle=partial(settle_rows, features=self.features))
            await self.pool.run(fail, atomic=True)
            cycle.claimed.remove(task)

    def _learn(self, found: list[Any], want: ClaimRequest, started: float) -> None:
        now = time.monotonic()
        positions = [(row[2], row[3], row[4], row[5]) for row in found if row[1] is not None]
        short = len(positions) < want.count
        # Rows that a claim sets aside or passes by are announced by a row of nulls: then it was not the end.
        ended = short and want.only is None and not any(row[0] is None for row in found)
        emptied = want.queues if ended else ()
        self._remembered.learn(positions, short=short, cost=now - started, now=now, emptied=emptied)

    async def renew(self, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]) -> set[UUID]:
        ids = [task_id for task_id, _ in leases]
        tokens = [token for _, token in leases]
        noted = list(progress) or None
        held = await self._value("renew", ids, tokens, lease, noted, list(progress.values()) or None)
        return set(ids) - set(held)

    async def _return_unanswered(self) -> None:
        """A claim may have been committed and its answer lost: nobody runs those tasks. They go back as they came,
        instead of waiting for a lease to expire and paying for it with an attempt. Asked for a while, because the
        server may still be at it when we are back."""
        now = time.monotonic()
        if now < self._next_ask:
            return
        earliest = min(claim.asked + claim.lease for claim in self._unanswered.values()) - now
        found = await self._fetch("claimed_by", list(self._unanswered), earliest - CLOCKS_APART)
        lost = [
            Lease(row["id"], row["token"], row["attempt_count"], row["max_attempts"], feature=row["feature"])
            for row in found
        ]
        if lost:
            back = [settle(held, Released("the answer to the claim was lost"), Policy(), 0.0) for held in lost]
            await self.apply(Commit(transitions=back))
        self._next_ask = now + ASK_EVERY
        self._unanswered = {token: claim for token, claim in self._unanswered.items() if claim.until > now}

    async def tick(self, beat: Heartbeat) -> TickResult:
        if self._unanswered:
            await self._return_unanswered()
        now = time.monotonic()
        checked_to, next_full_check = self._checked.get(beat.queues, (None, 0.0))
        full = now >= next_full_check
        since = None if full else checked_to
        args = [
            beat.worker_id, beat.host, beat.pid, list(beat.queues), beat.concurrency, beat.running, beat.version,
            beat.stopping, list(beat.duties), list(beat.duties.values()), since, PROMOTE_LIMIT,
            round(beat.every * 1000),
            list(self.reacting), list(beat.while_records), *_columns(beat.while_records.values()),
        ]  # fmt: skip
        found = await past_bad_rows(self.pool, beat.queues, lambda: self._fetch("tick", *args), self.features)
        row = found[0]
        if full and row["checked_to"] is not None:
            next_full_check = now + max(FULL_CHECK_EVERY, 20 * (time.monotonic() - now))
        if len(self._checked) >= MOST_SETS:
            self._checked.clear()  # executors may ask for whatever they like
        self._checked[beat.queues] = (row["checked_to"], next_full_check)
        return TickResult(list(row["duties"] or ()), list(row["cancels"]), row["next_due"], row["promoted"])

    async def expired(self, limit: int) -> list[ExpiredLease]:
        times = [checked_to for checked_to, _ in self._checked.values()]
        since = None if None in times else min((time for time in times if time is not None), default=None)
        found = await self._fetch("expired", since, limit, list(self.features.reactions.names))
        return [
            ExpiredLease(
                row["id"], row["token"], row["attempt_count"], row["max_attempts"], row["worker_id"], None,
                row["feature"], row["kind"], row["queue"], row["trace_id"], row["timeout"], row["seconds"],
                row["cancelled"],
            )
            for row in found
        ]  # fmt: skip

    async def due_schedules(self) -> tuple[datetime, list[ScheduleRow]]:
        found = await self._fetch("due_schedules")
        now = found[0]["now"] if found else await self._value("now")
        return now, [as_schedule(row) for row in found]

    async def scrub(self) -> bool:
        """Old versions of rows are the server's: vacuum removes them, with its own patience."""
        return True

    async def upkeep(self, duty: str, keep: Retention = DEFAULTS) -> int:
        match duty:
            case "recount":
                return int(await self._value(duty) or 0)
            case "fold":
                return int(await self._value(duty, FOLD_LIMIT))
            case "promote":
                return await self._promote_everywhere()
            case "partitions":
                return int(await self._value(duty, keep.history_days))
            case "prune":
                return await self._prune(keep)
        return 0

    async def _promote_everywhere(self) -> int:
        try:
            return int(await self._value("promote", PROMOTE_LIMIT))
        except RedriveError as error:
            if not about_a_row(error):
                raise
        queues = [row["queue"] for row in await self._fetch("due_queues")]
        return int(await past_bad_rows(self.pool, queues, lambda: self._value("promote", PROMOTE_LIMIT), self.features))

    async def _prune(self, keep: Retention) -> int:
        """Piece after piece: what has to be kept is looked at, too, and must not end the round."""
        removed = 0
        for _ in range(PRUNE_PIECES):
            [(gone, more)] = await self._fetch("prune", json.dumps(keep.values()), PRUNE_LIMIT)
            removed += gone
            if not more:
                break
        return removed

    @asynccontextmanager
    async def transaction(self, settlement: Callable[[], Transition]) -> AsyncIterator[Transaction]:
        theirs: Exception | None = None
        settled = False
        try:
            async with self.pool.transaction(lent=True) as connection:
                try:
                    yield connection
                except Exception as error:
                    theirs = error
                    raise
                transition = settlement()
                if transition.task_id not in await settle_rows(connection, [transition], self.features):
                    raise LeaseLost(
                        f"task {transition.task_id} is no longer held by this worker; its transaction was rolled back"
                    )
                settled = True
        except Exception as error:
            # What the commit is refused for is theirs as well: only a handler's tables have something to check there.
            theirs = theirs or (refusal(error) if settled else None)
            if theirs is None:
                raise
        # What the handler raised must not come out as an error of the store. Not within the "except", where its own
        # cause and context would be replaced.
        if theirs is not None:
            raise theirs

    async def diagnose(self) -> Diagnosis:
        return await diagnose(self.pool, index_names("redrive.stores.postgres"))

    async def vitals(self) -> dict[str, int]:
        return await vitals(self.pool)

    # -- plumbing --------------------------------------------------------------------------------------------------

    async def _fetch(self, name: str, *args: Any) -> list[Any]:
        found: list[Any] = await self.pool.run(lambda connection: connection.fetch(SQL[name], *args))
        return found

    async def _value(self, name: str, *args: Any) -> Any:
        return await self.pool.run(lambda connection: connection.fetchval(SQL[name], *args))


def _columns(pairs: Collection[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def _cycle_of(found: list[Any], token: UUID) -> Cycle:
    """Rows of ``redrive.claimed``: of nulls when there may be more, without a kind when a settlement was lost."""
    cycle = Cycle()
    for row in found:
        if row[0] is None:
            cycle.more = True
        elif row[1] is None:
            cycle.lost.add(row[0])
        else:
            cycle.claimed.append(codec.claimed(row, token))
    return cycle
