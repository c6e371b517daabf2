"""Applies what features add to moves, in the transaction of the moves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.stores.features import Features
from redrive.stores.postgres.audit import add_audits
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.ledger import post
from redrive.stores.postgres.pool import Connection


async def react(connection: Connection, moves: Sequence[tuple[Transition, Landed]], features: Features) -> None:
    """Applies what the features return for these moves, all together."""
    if moves:
        await add_effects(connection, features.reactions.effects_of(moves), features)


async def add_effects(connection: Connection, effects: Effects, features: Features) -> None:
    if effects.tasks:
        await enqueue(connection, effects.tasks, False, verb="add")
    # Accounts are locked in one order by all.
    for posting in sorted(effects.postings, key=lambda posting: sorted(posting.entries)):
        await post(connection, posting)
    await write_rows(connection, effects.rows, features)
    if effects.audits:
        await add_audits(connection, effects.audits)


async def write_rows(connection: Connection, rows: Iterable[Rows], features: Features) -> None:
    """Writes rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        await connection.execute(features.statement(part.feature, part.statement), json.dumps(part.values))
