"""Applies what follows from moves that features react to, in their transaction: effects and arrivals at joins."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import asyncpg

from redrive.errors import ConfigError
from redrive.kernel.audit import Audit
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Landed, Rows, features_of, reaction_failed
from redrive.stores.features import Features, tell_conflicts
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.errors import translate
from redrive.stores.postgres.pool import Connection
from redrive.stores.postgres.writes import add_audits, arrive, close_joins, hold_joins, open_joins, post

# What the database finds wrong with a statement or its values: data, integrity, syntax and names, raised by a trigger.
_REFUSALS = ("22", "23", "42", "44", "P0")


async def follow(
    connection: Connection, moves: Sequence[tuple[Transition, Landed]], members: str | None, features: Features
) -> None:
    """Applies what the features return for these moves, all together, and the arrivals of all moves. New members come
    before arrivals: a join that gets one by the end of its last has not ended."""
    effects, who = features.reactions.effects_of(moves), features_of(moves)
    conflicts: list[Audit] = []
    outer = [join.outer for join in effects.joins if join.outer is not None]
    with _blaming(who, "to add tasks to its moves"):
        await hold_joins(connection, [*outer, *(task.join for task in effects.tasks if task.join is not None)])
        await open_joins(connection, effects.joins)
        if effects.tasks:
            answers = await enqueue(connection, effects.tasks, False, verb="add")
            conflicts = tell_conflicts(who, effects.tasks, answers)
    # Joins before accounts: one order for all.
    await arrive(connection, members)
    with _blaming(who, "to close its joins"):
        await close_joins(connection, [*effects.closes, *(join.id for join in effects.joins if not join.open)])
    with _blaming(who, "to move money"):
        await post(connection, effects.postings)
    for rows in effects.rows:
        with _blaming(f"the feature {rows.feature!r}", f"to write its {rows.statement}"):
            await write_rows(connection, [rows], features)
    with _blaming(who, "to write its audit rows"):
        if effects.audits or conflicts:
            await add_audits(connection, [*effects.audits, *conflicts])


@contextmanager
def _blaming(who: str, what: str) -> Iterator[None]:
    """Says of what goes wrong inside that a feature is to blame, unless nobody here is."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        ConfigError,
        TypeError,
        ValueError,
        LookupError,
        AttributeError,
        ArithmeticError,
    ) as error:
        if not isinstance(error, asyncpg.PostgresError):
            raise reaction_failed(who, what, error) from error
        if not (error.sqlstate or "").startswith(_REFUSALS):
            raise  # a deadlock, a time-out, a server that goes down
        raise reaction_failed(who, what, translate(error, "the store")) from error


async def write_rows(connection: Connection, rows: Iterable[Rows], features: Features) -> None:
    """Writes rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        await connection.execute(features.statement(part.feature, part.statement), json.dumps(part.values))
