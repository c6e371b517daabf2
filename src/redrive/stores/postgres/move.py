"""Moves: every transition but plain completions, decided by ``functions/move.sql``, with what features add to them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from redrive.kernel.machine import Event, Transition
from redrive.kernel.reactions import Landed
from redrive.kernel.retry_guard import RetryWithheld, Withheld, by_feature
from redrive.kernel.task import State
from redrive.stores.features import Features
from redrive.stores.postgres import codec
from redrive.stores.postgres.effects import follow
from redrive.stores.postgres.pool import Connection
from redrive.stores.refusals import ended_inside
from redrive.stores.sql import statements

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
