"""Settles tasks: completions, which are most of it, and every other transition of the state machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from redrive.kernel.machine import Event, Transition
from redrive.kernel.reactions import Landed
from redrive.kernel.retry_guard import RetryWithheld, Withheld, by_feature
from redrive.kernel.task import State
from redrive.stores.features import Features
from redrive.stores.postgres import codec
from redrive.stores.postgres.pool import Connection, Pool
from redrive.stores.postgres.writes import follow
from redrive.stores.refusals import ended_inside, lease_lost
from redrive.stores.sql import statements

# Moves: every transition but plain completions, decided by ``functions/move.sql``, with what features add to them.

SQL = statements("redrive.stores.postgres", "statements.sql")


async def move(
    connection: Connection,
    moves: str,
    transitions: Sequence[Transition],
    features: Features,
    instead: dict[UUID, State],
    begun: datetime | None = None,
) -> Sequence[UUID]:
    """Apply ``moves``, the encoded ones among these transitions; returns the ids that moved. ``instead`` and ``begun``
    as in ``settle``."""
    row = await connection.fetchrow(SQL["move"], moves, list(features.reactions.names), begun)
    if row is None:
        raise ended_inside()
    if row["landed"] is not None:
        asked = {t.task_id: t for t in transitions}
        landed = [codec.landed(document) for document in json.loads(row["landed"])]
        told = [(asked[each.task_id], each) for each in landed]
        await _check_retries(connection, told, features)
        await follow(connection, told, row["members"], features)
    if row["instead"] is not None:
        instead.update({UUID(task_id): State(state) for task_id, state in json.loads(row["instead"]).items()})
    moved: Sequence[UUID] = row["moved"]
    return moved


async def _check_retries(
    connection: Connection, moves: Sequence[tuple[Transition, Landed]], features: Features
) -> None:
    """Raises if a feature withholds one of these retries. It is asked when their rows are locked, so that nobody can
    retry them meanwhile."""
    retried = [(each.task_id, each.feature, each.facts) for t, each in moves if t.event is Event.REDRIVE]
    found: dict[UUID, Withheld] = {}
    for feature, asked in by_feature(features.guards, retried).items():
        guard = features.guards[feature]
        rows = await connection.fetch(features.statement(feature, guard.statement), json.dumps(asked))
        found |= guard.withheld([dict(row) for row in rows])
    if found:
        raise RetryWithheld(found)


_COMPLETE = Event.COMPLETE
# Longer than a settlement waits for what others hold.
MISSED_AGAIN_AFTER_S = 0.3


def reacts(transitions: Sequence[Transition]) -> bool:
    """Whether a feature has something to say to one of these."""
    return any(t.feature is not None and not t.rule.quiet for t in transitions)


class Settlements(NamedTuple):
    """Transitions as the functions that settle take them: plain completions by columns, every other move in one
    document. What there is none of is None."""

    ids: list[UUID] | None
    tokens: list[UUID | None] | None
    execution_ms: list[float | None] | None
    results: list[str | None] | None
    keep: list[float | None] | None  # for how long completed ones are kept, where a kind says so
    moves: str | None


def settlements_of(transitions: Sequence[Transition]) -> Settlements:
    """Returns these transitions as arguments."""
    # One verdict per lease: an element given twice (an operator's list of ids may) counts once.
    if len({t.task_id for t in transitions}) < len(transitions):
        transitions = list({(t.task_id, t.token): t for t in reversed(transitions)}.values())[::-1]
    # What a feature reacts to takes the long way, which looks at each row.
    done = [t for t in transitions if t.event is _COMPLETE and t.feature is None]
    moves: str | None = None
    if len(done) < len(transitions):
        moves = codec.moves([t for t in transitions if t.event is not _COMPLETE or t.feature is not None])
    if not done:
        return Settlements(None, None, None, None, None, moves)
    return Settlements(
        [t.task_id for t in done],
        [t.token for t in done],
        [t.execution_ms for t in done],
        [t.result for t in done] if any(t.result is not None for t in done) else None,
        [t.keep for t in done] if any(t.keep is not None for t in done) else None,
        moves,
    )


async def settle(
    connection: Connection,
    transitions: Sequence[Transition],
    features: Features,
    begun: datetime | None = None,
    *,
    instead: dict[UUID, State] | None = None,
) -> set[UUID]:
    """Applies transitions on a connection whose transaction is someone else's; returns the ids that moved. ``begun``:
    in no other transaction than the one that began then. ``instead`` is told where those led that led elsewhere."""
    *done, moves = settlements_of(transitions)
    completes = done[0] is not None
    moved: set[UUID] = set()
    if completes and moves:
        await connection.execute(SQL["lock_rows"], [t.task_id for t in transitions])
    if completes:
        row = await connection.fetchrow(SQL["complete"], *done, begun)
        if row is None:
            raise ended_inside()
        moved.update(row[0] or ())
    if moves:
        moved.update(await move(connection, moves, transitions, features, {} if instead is None else instead, begun))
    return moved


async def landed_before(connection: Connection, transitions: Sequence[Transition]) -> set[UUID]:
    """Returns those of these settlements that an earlier try brought in, whose answer was lost."""
    args = [[t.task_id for t in transitions], [t.token for t in transitions], [t.keep == 0 for t in transitions]]
    return {row["id"] for row in await connection.fetch(SQL["landed"], *args)}


async def settle_or_raise(connection: Connection, transition: Transition, features: Features, begun: datetime) -> None:
    """Ends a task in its handler's own transaction, which has to be the one that it was given; raises otherwise."""
    if transition.task_id not in await settle(connection, [transition], features, begun):
        raise lease_lost(transition.task_id)


async def renew(
    pool: Pool, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]
) -> set[UUID]:
    """Extends leases and keeps progress, fenced by token; returns the ids whose lease is lost. It waits for none that
    somebody else is at: those are tried once more, when a settlement that waits for something has given up."""
    lost, missed = await pool.run(lambda connection: _renew(connection, leases, lease, progress))
    if missed:
        await asyncio.sleep(MISSED_AGAIN_AFTER_S)
        left = [pair for pair in leases if pair[0] in missed]
        more, _ = await pool.run(lambda connection: _renew(connection, left, lease, progress))
        lost |= more
    return lost


async def _renew(
    connection: Connection, leases: Sequence[tuple[UUID, UUID]], lease: float, progress: Mapping[UUID, str]
) -> tuple[set[UUID], set[UUID]]:
    ids, tokens = [task_id for task_id, _ in leases], [token for _, token in leases]
    noted, texts = list(progress) or None, list(progress.values()) or None
    renewed, missed = await connection.fetchrow(SQL["renew"], ids, tokens, lease, noted, texts)
    return set(ids).difference(renewed, missed), set(missed)
