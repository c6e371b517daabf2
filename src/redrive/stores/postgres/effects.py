"""What features add to moves, in the transaction of the moves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.stores.features import Features
from redrive.stores.postgres import codec
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.pool import Connection
from redrive.stores.sql import statements

SQL = statements("redrive.stores.postgres", "statements.sql")


async def react(connection: Connection, moves: Sequence[tuple[Transition, Landed]], features: Features) -> None:
    """Apply what the features say to these moves, all together."""
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
        await connection.execute(SQL["audit"], codec.audits(effects.audits))


async def post(connection: Connection, posting: Posting) -> bool:
    """One movement of money; False when the key was posted before."""
    accounts, amounts = zip(*posting.entries, strict=True)
    return bool(await connection.fetchval(SQL["post"], posting.key, list(accounts), list(amounts), posting.note))


async def write_rows(connection: Connection, rows: Iterable[Rows], features: Features) -> None:
    """Rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        await connection.execute(features.statement(part.feature, part.statement), json.dumps(part.values))
