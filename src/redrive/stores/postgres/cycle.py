"""Settles and claims in one commit: the worker's hot loop."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from redrive.kernel.commit import Commit
from redrive.kernel.machine import Transition
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.kernel.task import MAX_PAYLOAD_BYTES, Claimed
from redrive.stores.features import Features
from redrive.stores.postgres.apply import apply
from redrive.stores.postgres.bad_rows import fail_row, past_bad_rows
from redrive.stores.postgres.calls import fetch
from redrive.stores.postgres.claim import Claims, Send
from redrive.stores.postgres.pool import Connection, Pool
from redrive.stores.postgres.settle import reacts
from redrive.stores.refusals import PAYLOAD_TOO_LARGE
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")
# How long a settlement waits for what an application's open transaction may hold: a join, an account, the key of what
# follows, a feature's row. All others of the call wait as well; whoever settles sends the held ones apart after that.
PATIENCE = "250ms"


class Cycles:
    """Settles and claims: in one statement, unless features react to what settles."""

    def __init__(self, pool: Pool, features: Features, claims: Claims) -> None:
        self._pool = pool
        self._features = features
        self._claims = claims

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
            cycle = await self._claims.claim(commit.transitions, want, again, self._sender(commit.transitions))
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
            cycle = await self._claims.claim((), want, False, lambda args: connection.fetch(SQL["cycle"], *args))
            cycle.lost, cycle.instead = applied.lost, applied.instead
            return cycle

        cycle: Cycle = await self._pool.run(work, atomic=True)
        return cycle

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
