"""Applies what features add to moves, in the transaction of the moves."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import asyncpg

from redrive.errors import ConfigError
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Effects, Landed, Rows, reaction_failed
from redrive.stores.features import Features
from redrive.stores.postgres.audit import add_audits
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.ledger import post
from redrive.stores.postgres.pool import Connection


async def react(connection: Connection, moves: Sequence[tuple[Transition, Landed]], features: Features) -> None:
    """Applies what the features return for these moves, all together."""
    if moves:
        await _add_effects(connection, features.reactions.effects_of(moves), features)


# What the database finds wrong with a statement or its values: data, integrity, syntax and names, raised by a trigger.
_REFUSALS = ("22", "23", "42", "44", "P0")


async def _add_effects(connection: Connection, effects: Effects, features: Features) -> None:
    if effects.tasks:
        await enqueue(connection, effects.tasks, False, verb="add")
    # Accounts are locked in one order by all.
    for posting in sorted(effects.postings, key=lambda posting: sorted(posting.entries)):
        await post(connection, posting)
    for rows in effects.rows:
        try:
            await write_rows(connection, [rows], features)
        except (asyncpg.PostgresError, ConfigError, TypeError, ValueError) as error:
            if isinstance(error, asyncpg.PostgresError) and not (error.sqlstate or "").startswith(_REFUSALS):
                raise  # a deadlock, a time-out, a server that goes down: nobody's fault here
            raise reaction_failed(f"the feature {rows.feature!r}", f"to write its {rows.statement}", error) from error
    if effects.audits:
        await add_audits(connection, effects.audits)


async def write_rows(connection: Connection, rows: Iterable[Rows], features: Features) -> None:
    """Writes rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        await connection.execute(features.statement(part.feature, part.statement), json.dumps(part.values))
