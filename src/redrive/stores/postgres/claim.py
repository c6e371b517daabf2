"""Claims tasks, remembers where the last claim ended, and gives back claims whose answer was lost."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from redrive.kernel.machine import Lease, Policy, Transition, settle
from redrive.kernel.outcome import Released
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.kernel.task import State
from redrive.stores.postgres import codec
from redrive.stores.postgres.calls import fetch
from redrive.stores.postgres.pool import Pool
from redrive.stores.postgres.scan_positions import ScanPositions
from redrive.stores.postgres.settle import keep_of, settlement_args

ASK_ABOUT_CLAIM_FOR_S = 60.0
ASK_ABOUT_CLAIMS_EVERY_S = 1.0
MOST_CLOCK_DRIFT_S = 5.0  # how much two clocks may drift from each other while an answer is waited for
Send = Callable[[list[Any]], Awaitable[list[Any]]]
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


class Claims:
    """Sends ``redrive.cycle``, and learns from each answer where the next claim begins."""

    def __init__(self, positions: ScanPositions, unanswered: UnansweredClaims) -> None:
        self._positions = positions
        self._unanswered = unanswered

    async def claim(
        self, settlements: Sequence[Transition], want: ClaimRequest | None, again: bool, send: Send
    ) -> Cycle:
        token = uuid4()
        args = settlement_args(settlements, again)
        keep = keep_of(args, settlements)
        if want is None:
            return _cycle_of(await send([*args, "", token, 0.0, 0, [], None, None, [], [], [], [], [], keep]), token)
        started = time.monotonic()
        args += [
            want.worker_id,
            token,
            want.lease,
            want.count,
            list(want.queues),
            None if want.handles is None else list(want.handles),
            want.only,
            *self._positions.segments(want.queues, started),
            keep,
        ]
        try:
            found = await send(args)
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


def _cycle_of(found: list[Any], token: UUID) -> Cycle:
    """Returns a Cycle from rows of ``redrive.claimed``: of nulls when there may be more, without a kind when a
    settlement was lost or led elsewhere."""
    cycle = Cycle()
    for row in found:
        if row[0] is None:
            cycle.more = True
        elif row[1] is None and row[2] is None:
            cycle.lost.add(row[0])
        elif row[1] is None:
            cycle.instead[row[0]] = State(row[2])
        else:
            cycle.claimed.append(codec.claimed(row, token))
    return cycle
