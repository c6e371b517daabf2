"""Settles and claims in one commit: the worker's hot loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from redrive.kernel.commit import Commit
from redrive.kernel.machine import Lease, Policy, Transition, settle
from redrive.kernel.outcome import Released
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.kernel.task import MAX_PAYLOAD_BYTES, Claimed, State
from redrive.stores.features import Features
from redrive.stores.postgres import codec
from redrive.stores.postgres.apply import apply
from redrive.stores.postgres.bad_rows import fail_row, past_bad_rows
from redrive.stores.postgres.pool import Connection, Pool, fetch
from redrive.stores.postgres.scan_positions import ScanPositions, Segments
from redrive.stores.postgres.settle import reacts, settlements_of
from redrive.stores.refusals import PAYLOAD_TOO_LARGE
from redrive.stores.sql import statements

# Claims tasks, remembers where the last claim ended, and gives back claims whose answer was lost.

ASK_ABOUT_CLAIM_FOR_S = 60.0
ASK_ABOUT_CLAIMS_EVERY_S = 1.0
MOST_CLOCK_DRIFT_S = 5.0  # how much two clocks may drift from each other while an answer is waited for
Send = Callable[["Call"], Awaitable[list[Any]]]
GiveBack = Callable[[Sequence[Transition]], Awaitable[object]]


@dataclass(slots=True, frozen=True)
class UnansweredClaim:
    """A claim that the server may have committed without our hearing of it, and until when to ask about it."""

    asked: float
    lease: float
    until: float


class UnansweredClaims:
    """Gives back tasks of claims that may have been committed and whose answer was lost: nobody runs them. They go back
    as they came, instead of waiting for a lease to expire and paying for it with an attempt. It is asked for a while,
    because the server may still be at it when we are back."""

    def __init__(self, pool: Pool, give_back: GiveBack) -> None:
        self._pool = pool
        self._give_back = give_back
        self._claims: dict[UUID, UnansweredClaim] = {}
        self._next_ask = 0.0

    def add(self, token: UUID, asked: float, lease: float) -> None:
        self._claims[token] = UnansweredClaim(asked, lease, time.monotonic() + ASK_ABOUT_CLAIM_FOR_S)
        self._next_ask = 0.0

    async def give_back(self) -> None:
        """Returns what such claims have taken to its queues."""
        now = time.monotonic()
        if not self._claims or now < self._next_ask:
            return
        earliest = min(claim.asked + claim.lease for claim in self._claims.values()) - now
        found = await fetch(self._pool, "claimed_by", list(self._claims), earliest - MOST_CLOCK_DRIFT_S)
        lost = [
            Lease(row["id"], row["token"], row["attempt_count"], row["max_attempts"], feature=row["feature"])
            for row in found
        ]
        if lost:
            released = Released("the answer to the claim was lost")
            await self._give_back([settle(lease, released, Policy(), 0.0) for lease in lost])
        self._next_ask = now + ASK_ABOUT_CLAIMS_EVERY_S
        self._claims = {token: claim for token, claim in self._claims.items() if claim.until > now}


class Call(NamedTuple):
    """The arguments of ``redrive.cycle``, in its order: what settles, what is claimed, where that begins to look."""

    ids: list[UUID] | None
    tokens: list[UUID | None] | None
    execution_ms: list[float | None] | None
    results: list[str | None] | None
    moves: str | None
    again: bool
    worker_id: str
    token: UUID  # of all leases that it gives
    lease: float
    most: int
    queues: list[str]
    handles: list[str] | None
    only: str | None
    segment_queues: list[str]
    segment_lanes: list[str]
    segment_priorities: list[int]
    segment_positions: list[int]
    segment_ends: list[int]
    keep: list[float | None] | None


NOTHING = ClaimRequest(worker_id="", queues=(), count=0, lease=0.0)
NOWHERE: Segments = ([], [], [], [], [])


def _arguments(
    transitions: Sequence[Transition], again: bool, want: ClaimRequest, token: UUID, segments: Segments
) -> Call:
    ids, tokens, execution_ms, results, keep, moves = settlements_of(transitions)
    handles = None if want.handles is None else list(want.handles)
    wanted = (want.worker_id, token, want.lease, want.count, list(want.queues), handles, want.only)
    return Call(ids, tokens, execution_ms, results, moves, again, *wanted, *segments, keep)


def _cycle_of(found: list[Any], token: UUID) -> Cycle:
    """Returns a Cycle from rows of ``redrive.claimed``. Those with a kind are claimed tasks. Of a settlement there is
    one with its id alone, if it lost its lease, or with a state where a queue would be, if it led there instead. One
    without an id says that there may be more to claim."""
    cycle = Cycle()
    for row in found:
        if row[1] is not None:
            cycle.claimed.append(codec.claimed(row, token))
            continue
        task_id, state = row[0], row[2]
        if task_id is None:
            cycle.more = True
        elif state is None:
            cycle.lost.add(task_id)
        else:
            cycle.instead[task_id] = State(state)
    return cycle


SQL = statements("redrive.stores.postgres", "statements.sql")
# How long a settlement waits for what an application's open transaction may hold: a join, an account, the key of what
# follows, a feature's row. All others of the call wait as well; whoever settles sends the held ones apart after that.
PATIENCE = "250ms"


class Cycles:
    """Settles and claims: in one statement, unless features react to what settles. Each answer tells where the next
    claim begins."""

    def __init__(self, pool: Pool, features: Features, positions: ScanPositions, unanswered: UnansweredClaims) -> None:
        self._pool = pool
        self._features = features
        self._positions = positions
        self._unanswered = unanswered

    async def cycle(self, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
        if want is None:
            return await self._once(commit, None, again)
        tries = 0

        async def call() -> Cycle:
            nonlocal tries
            tries += 1
            # What is wrong with a row may show on its way to us, after the commit.
            return await self._once(commit, want, again or tries > 1)

        return await past_bad_rows(self._pool, want.queues, call, self._features)

    async def _once(self, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
        if commit.only_transitions and not reacts(commit.transitions):
            cycle = await self._call(commit.transitions, want, again, self._sender(commit.transitions))
        else:
            cycle = await self._with_effects(commit, want, again)
        large = [task for task in cycle.claimed if task.payload and len(task.payload) > MAX_PAYLOAD_BYTES]
        if large:
            await self._set_aside_large(cycle, large)
        return cycle

    def _sender(self, transitions: Sequence[Transition]) -> Send:
        if any(transition.join is not None for transition in transitions):
            return lambda args: fetch(self._pool, "cycle_bounded", *args, PATIENCE)
        return lambda args: fetch(self._pool, "cycle", *args)

    async def _with_effects(self, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
        """Does the same in several statements of one transaction: what features add is worked out between them."""

        async def work(connection: Connection) -> Cycle:
            await connection.execute(SQL["patience"], PATIENCE)
            applied = await apply(connection, commit, self._features, again=again)
            if want is None:
                return Cycle(lost=applied.lost, instead=applied.instead)
            cycle = await self._call((), want, False, lambda args: connection.fetch(SQL["cycle"], *args))
            cycle.lost, cycle.instead = applied.lost, applied.instead
            return cycle

        cycle: Cycle = await self._pool.run(work, atomic=True)
        return cycle

    async def _call(
        self, settlements: Sequence[Transition], want: ClaimRequest | None, again: bool, send: Send
    ) -> Cycle:
        """Sends ``redrive.cycle``."""
        token, started = uuid4(), time.monotonic()
        if want is None:
            return _cycle_of(await send(_arguments(settlements, again, NOTHING, token, NOWHERE)), token)
        call = _arguments(settlements, again, want, token, self._positions.segments(want.queues, started))
        try:
            found = await send(call)
        except BaseException:  # a cancellation too: the server may commit what nobody waits for any more
            self._unanswered.add(token, started, want.lease)
            raise
        self._learn(found, want, started)
        return _cycle_of(found, token)

    def _learn(self, found: list[Any], want: ClaimRequest, started: float) -> None:
        now = time.monotonic()
        positions = [(row[2], row[3], row[4], row[5]) for row in found if row[1] is not None]
        short = len(positions) < want.count
        # Rows that a claim sets aside or passes by are announced by a row of nulls: then it was not the end.
        ended = short and want.only is None and not any(row[0] is None for row in found)
        emptied = want.queues if ended else ()
        self._positions.learn(positions, short=short, cost=now - started, now=now, emptied=emptied)

    async def _set_aside_large(self, cycle: Cycle, large: list[Claimed]) -> None:
        """Payloads that were written past the limit, and are larger than they look on the disk. Those of features that
        are not known here are handed back by whoever claimed them."""
        for task in large:
            if task.feature is None or task.feature in self._features.reactions:
                fail = partial(
                    fail_row, task_id=task.id, why=PAYLOAD_TOO_LARGE, features=self._features, where=self._pool.where
                )
                await self._pool.run(fail, atomic=True)
                cycle.claimed.remove(task)
