"""The PostgreSQL store: the port's verbs, each one call of a SQL function."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

from redrive.errors import ChangedMeanwhile, LeaseLost, RedriveError, StoreUnavailable
from redrive.kernel.audit import UNUSABLE, Batch
from redrive.kernel.commit import Applied, CancelRequest, Commit, Control, Declare, Hold, Limit
from redrive.kernel.diagnosis import Diagnosis
from redrive.kernel.erase import Erase
from redrive.kernel.machine import Event, ExpiredLease, Held, Policy, Transition, settle
from redrive.kernel.outcome import Released
from redrive.kernel.records import Put
from redrive.kernel.retention import DEFAULTS, Retention
from redrive.kernel.store import Beat, Capabilities, Cycle, ScheduleRow, Tick, Transaction, Wake, Want
from redrive.kernel.task import MAX_PAYLOAD_BYTES, Enqueued, NewTask
from redrive.stores.postgres import arguments
from redrive.stores.postgres.bad_rows import about_a_row, fail_row, past_bad_rows, settle_in_parts
from redrive.stores.postgres.batcher import Batcher
from redrive.stores.postgres.diagnose import diagnose, vitals
from redrive.stores.postgres.enqueue import NotMade, enqueue, enqueue_in_parts
from redrive.stores.postgres.errors import IdTaken
from redrive.stores.postgres.listener import Listener
from redrive.stores.postgres.migrate import PostgresMigrations
from redrive.stores.postgres.pool import Connection, Pool, refusal
from redrive.stores.postgres.reads import Reads
from redrive.stores.postgres.remembered import Remembered
from redrive.stores.rows import audit as as_audit
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

    def __init__(self, url: str) -> None:
        self.url = url
        self.pool = Pool(url)
        self.migrations = PostgresMigrations(self.pool)
        self._remembered = Remembered()
        self._batcher = Batcher(self._enqueue_patiently)
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

    async def apply(self, commit: Commit) -> Applied:
        if commit.only_enqueues:
            if len(commit.enqueues) <= SHARE_UP_TO and not commit.again:
                return Applied(enqueued=await self._batcher.enqueue(commit.enqueues))
            # Large calls take turns: heartbeats and settles must find a connection free.
            send = self._enqueue_in_parts if commit.in_parts else self._enqueue_once
            async with self._large:
                answers = await self._patiently(lambda again: send(commit.enqueues, again), commit.again)
                return Applied(enqueued=answers)
        if commit.all_or_none:
            return await self._patiently(lambda again: self._apply_once(replace(commit, again=again)), commit.again)
        return await self._apply_once(commit)

    async def _apply_once(self, commit: Commit) -> Applied:
        try:
            applied: Applied = await self.pool.run(lambda connection: _apply(connection, commit), atomic=True)
        except RedriveError as error:
            if not commit.transitions or not about_a_row(error):
                raise
            where = self.pool.where
            applied = await self.pool.run(lambda connection: _apply(connection, commit, where), atomic=True)
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

    async def cycle(self, settlements: Sequence[Transition], want: Want | None, *, again: bool = False) -> Cycle:
        if self._unanswered:
            await self._return_unanswered()
        if want is None:
            return await self._cycle(settlements, None, again)
        tries = 0

        async def call() -> Cycle:
            nonlocal tries
            tries += 1
            # What is wrong with a row may show on its way to us, after the commit.
            return await self._cycle(settlements, want, again or tries > 1)

        return await past_bad_rows(self.pool, want.queues, call)

    async def _cycle(self, settlements: Sequence[Transition], want: Want | None, again: bool) -> Cycle:
        token = uuid4()
        args = _settlement_args(settlements, again)
        keep = _keep(args, settlements)
        if want is None:
            args += ["", token, 0.0, 0, [], None, None, [], [], [], [], [], keep]
            found = await self._fetch("cycle", *args)
        else:
            started = time.monotonic()
            segments = self._remembered.segments(want.queues, started)
            args += [want.worker_id, token, want.lease, want.count, list(want.queues),
                     None if want.handles is None else list(want.handles), want.only, *segments, keep]  # fmt: skip
            try:
                found = await self._fetch("cycle", *args)
            except BaseException:  # a cancellation too: the server may commit what nobody waits for any more
                self._unanswered[token] = Unanswered(started, want.lease, time.monotonic() + UNANSWERED_FOR)
                self._next_ask = 0.0
                raise
            self._learn(found, want, started)
        cycle = Cycle()
        for row in found:
            if row[0] is None:
                cycle.more = True
            elif row[1] is None:
                cycle.lost.add(row[0])
            else:
                cycle.claimed.append(arguments.claimed(row, token))
        if any(task.payload and len(task.payload) > MAX_PAYLOAD_BYTES for task in cycle.claimed):
            await self._set_aside_large(cycle)
        return cycle

    async def _set_aside_large(self, cycle: Cycle) -> None:
        """Payloads that were written past the limit, and are larger than they look on the disk."""
        for task in [task for task in cycle.claimed if task.payload and len(task.payload) > MAX_PAYLOAD_BYTES]:
            why = f"its payload is over the limit of {MAX_PAYLOAD_BYTES:,} bytes"
            await self.pool.run(partial(fail_row, task_id=task.id, why=why), atomic=True)
            cycle.claimed.remove(task)

    def _learn(self, found: list[Any], want: Want, started: float) -> None:
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
        lost = [Held(row["id"], row["token"], row["attempt_count"], row["max_attempts"]) for row in found]
        if lost:
            back = [settle(held, Released("the answer to the claim was lost"), Policy(), 0.0) for held in lost]
            await self.apply(Commit(transitions=back))
        self._next_ask = now + ASK_EVERY
        self._unanswered = {token: claim for token, claim in self._unanswered.items() if claim.until > now}

    async def tick(self, beat: Beat) -> Tick:
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
        ]  # fmt: skip
        found = await past_bad_rows(self.pool, beat.queues, lambda: self._fetch("tick", *args))
        row = found[0]
        if full and row["checked_to"] is not None:
            next_full_check = now + max(FULL_CHECK_EVERY, 20 * (time.monotonic() - now))
        if len(self._checked) >= MOST_SETS:
            self._checked.clear()  # executors may ask for whatever they like
        self._checked[beat.queues] = (row["checked_to"], next_full_check)
        return Tick(list(row["duties"] or ()), list(row["cancels"]), row["next_due"], row["promoted"])

    async def expired(self, limit: int) -> list[ExpiredLease]:
        times = [checked_to for checked_to, _ in self._checked.values()]
        since = None if None in times else min((time for time in times if time is not None), default=None)
        found = await self._fetch("expired", since, limit)
        return [
            ExpiredLease(
                row["id"], row["token"], row["attempt_count"], row["max_attempts"], row["worker_id"], None, row["kind"],
                row["queue"], row["trace_id"], row["timeout"], row["seconds"],
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
        return int(await past_bad_rows(self.pool, queues, lambda: self._value("promote", PROMOTE_LIMIT)))

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
                if transition.task_id not in await _settle(connection, [transition]):
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


def _settlement_args(settlements: Sequence[Transition], again: bool) -> list[Any]:
    # One verdict per lease: an element given twice (an operator's list of ids may) counts once.
    settlements = list({(t.task_id, t.token): t for t in reversed(settlements)}.values())[::-1]
    done = [t for t in settlements if t.event is Event.COMPLETE]
    rest = [t for t in settlements if t.event is not Event.COMPLETE]
    results = [t.result for t in done] if any(t.result is not None for t in done) else None
    columns: list[Any] = [None, None, None, None]
    if done:
        columns = [[t.task_id for t in done], [t.token for t in done], [t.execution_ms for t in done], results]
    return [*columns, arguments.moves(rest) if rest else None, again]


def _keep(args: list[Any], settlements: Sequence[Transition]) -> list[float | None] | None:
    """How long completed tasks are kept, in the order of their ids; None when no kind says so: nothing is sent then."""
    said = {t.task_id: t.keep for t in settlements if t.keep is not None}
    return [said.get(task_id) for task_id in args[0]] if said else None


async def _settle(connection: Connection, settlements: Sequence[Transition]) -> set[UUID]:
    """Apply transitions on a connection whose transaction is someone else's; answers the ids that moved."""
    args = _settlement_args(settlements, False)
    ids, tokens, ms, results, moves, _ = args
    moved: set[UUID] = set()
    if ids:
        keep = _keep(args, settlements)
        moved.update(await connection.fetchval(SQL["complete"], ids, tokens, ms, results, keep) or ())
    if moves:
        moved.update(await connection.fetchval(SQL["move"], moves) or ())
    return moved


async def _apply(connection: Connection, commit: Commit, careful: str | None = None) -> Applied:
    """Everything of a Commit, in the caller's transaction. ``careful``: one of its rows was refused before, by the
    database of this name."""
    applied = Applied()
    if commit.enqueues:
        applied.enqueued = await enqueue(connection, commit.enqueues, commit.again)
        commit.check_conflicts(applied.enqueued)
    if commit.transitions:
        if careful is None:
            moved = await _settle(connection, commit.transitions)
        else:
            moved = await settle_in_parts(connection, commit.transitions, _settle, applied.refused, careful)
        applied.lost = {t.task_id for t in commit.transitions} - moved
    if commit.batch is not None:
        await _conclude(connection, commit.batch, commit, applied)
    for control in commit.controls:
        await _control(connection, control, applied)
    for fire in commit.fires:
        if await connection.fetchval(SQL["fire"], fire.name, fire.seen, fire.next_at):
            applied.fired.add(fire.name)
            if fire.tasks:
                await enqueue(connection, fire.tasks, False, verb="add")
    for posting in commit.postings:
        accounts, amounts = zip(*posting.entries, strict=True)
        if not await connection.fetchval(SQL["post"], posting.key, list(accounts), list(amounts), posting.note):
            applied.repeated.add(posting.key)
    if commit.audits:
        await connection.execute(SQL["audit"], arguments.audits(commit.audits))
    if commit.pruned:
        applied.pruned = {row["id"] for row in await connection.fetch(SQL["forget_audit"], list(commit.pruned))}
    if commit.erase is not None:
        applied.erased = await _erase(connection, commit.erase)
    if commit.conclusion is not None and (rows := commit.conclusion(applied)):
        added = [row["id"] for row in await connection.fetch(SQL["audit"], arguments.audits(rows))]
        applied.concluded = [as_audit(row) for row in await connection.fetch(SQL["audit_rows"], added)]
    for put in sorted(commit.puts, key=lambda put: (put.collection, put.id)):  # one order for all: no deadlocks
        await _put(connection, put, applied)
    return applied


async def _erase(connection: Connection, erase: Erase) -> dict[str, int]:
    numbers, digests = list(erase.audit), list(erase.audit.values())
    done = await connection.fetchval(
        SQL["erase"], list(erase.task_ids), erase.tombstone, numbers, digests, erase.scope, json.dumps(erase.holds),
        list(erase.telling),
    )  # fmt: skip
    return {place: n for place, n in json.loads(done).items() if n}


async def _put(connection: Connection, put: Put, applied: Applied) -> None:
    body = put.written(applied)
    if body is None:
        return
    args = [put.collection, put.id, put.state, json.dumps(body), put.keep]
    done = await (
        connection.fetchval(SQL["put"], *args, put.version) if put.version
        else connection.fetchval(SQL["put_new"], *args)
    )  # fmt: skip
    if done is None:
        raise ChangedMeanwhile(
            f"{put.collection} {put.id} was changed by somebody else", hint="look at it and try again"
        )


async def _conclude(connection: Connection, batch: Batch, commit: Commit, applied: Applied) -> None:
    """Say of each task that was left alone why, and add the batch up."""
    lost = [t.task_id for t in commit.transitions if t.task_id in applied.lost]
    found = await connection.fetch(SQL["standings"], lost) if lost else []
    states = {row["id"]: "erased" if row["erased"] else row["state"] for row in found}
    applied.skipped = {task_id: UNUSABLE if task_id in applied.refused else states.get(task_id) for task_id in lost}
    audits = batch.audits(len(commit.transitions) - len(lost), applied.skipped)
    await connection.execute(SQL["audit"], arguments.audits(audits))


async def _control(connection: Connection, control: Control, applied: Applied) -> None:
    match control:
        case Hold(target, name, on, actor, reason):
            if not await connection.fetchval(SQL["hold"], target.value, name, on, actor, reason):
                applied.repeated.add(f"{target.value}:{name}")
        case Limit(kind, concurrency, rate_ms, actor):
            await connection.fetchval(SQL["limit"], kind, concurrency, rate_ms, actor)
        case CancelRequest(task_id, actor, reason):
            if not await connection.fetchval(SQL["cancel"], task_id, actor, reason):
                applied.lost.add(task_id)
        case Declare(owner, schedules):
            await connection.fetchval(SQL["declare"], owner, arguments.schedules(schedules))
