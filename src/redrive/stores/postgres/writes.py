"""Writes what a Commit has besides tasks, and what features add to moves: joins, postings, audit rows, erasures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

import asyncpg

from redrive.errors import ConfigError
from redrive.kernel.audit import Audit
from redrive.kernel.erase import Erase, place_of, subject_of
from redrive.kernel.joins import NewJoin
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Landed, Rows, features_of, reaction_failed
from redrive.kernel.task import AuditRow
from redrive.stores.features import Features, tell_conflicts
from redrive.stores.postgres import codec
from redrive.stores.postgres.enqueue import enqueue
from redrive.stores.postgres.errors import translate
from redrive.stores.postgres.pool import Connection, touched
from redrive.stores.rows import audit as as_audit
from redrive.stores.sql import statements

# Opens and closes joins; members arrive with their settlements, in ``functions/joins.sql``.

SQL = statements("redrive.stores.postgres", "statements.sql")


async def open_joins(connection: Connection, joins: Sequence[NewJoin]) -> None:
    if joins:
        await connection.execute(SQL["open_joins"], codec.joins(joins))


async def close_joins(connection: Connection, join_ids: Sequence[UUID]) -> None:
    """Lets joins get no further members; those without any have ended."""
    if join_ids:
        await connection.execute(SQL["close_joins"], list(join_ids))


async def hold_joins(connection: Connection, adding: Sequence[UUID]) -> None:
    """Locks joins that get members by several statements: one order for all."""
    if len(set(adding)) > 1:
        await connection.execute(SQL["hold_joins"], list(adding))


async def opened_before(connection: Connection, joins: Sequence[NewJoin]) -> bool:
    """Returns whether an earlier try has opened these, and with that has brought in all of its Commit."""
    return bool(joins) and bool(await connection.fetch(SQL["known_joins"], [join.id for join in joins]))


async def arrive(connection: Connection, members: str | None) -> None:
    """Lets members arrive that ``redrive.move`` has left for after what features add."""
    if members is not None:
        await connection.execute(SQL["arrive"], members)


# Posts movements of money.


async def post(connection: Connection, postings: Sequence[Posting]) -> set[str]:
    """Posts movements of money, each at most once; returns the keys that were posted before."""
    return set(await connection.fetchval(SQL["post"], codec.postings(postings))) if postings else set()


# Writes audit rows.


async def add_audits(connection: Connection, audits: Sequence[Audit]) -> None:
    await connection.execute(SQL["audit"], codec.audits(audits))


async def add_conclusion(connection: Connection, audits: Sequence[Audit]) -> list[AuditRow]:
    """Adds rows that sum up what was done before them; returns them as they are kept."""
    added = [row["id"] for row in await connection.fetch(SQL["audit"], codec.audits(audits))]
    return [as_audit(row) for row in await connection.fetch(SQL["audit_rows"], added)]


# Erases personal data: see ``redrive.kernel.erase``.


async def erase_callbacks(connection: Connection, wanted: Erase | None) -> int:
    """Removes what joins would enqueue about a scope; returns how many. Called before anything is moved: a task that is
    given up may be the last that they wait for."""
    if wanted is None or wanted.callbacks is None:
        return 0
    return int(await connection.fetchval(SQL["erase_callbacks"], wanted.callbacks))


async def erase(connection: Connection, wanted: Erase, features: Features) -> dict[str, int]:
    """Erases in the caller's transaction; returns how many, by place."""
    numbers, digests = list(wanted.audit), list(wanted.audit.values())
    done = await connection.fetchval(
        SQL["erase"],
        list(wanted.task_ids),
        wanted.tombstone,
        numbers,
        digests,
        wanted.scope,
        json.dumps(wanted.holds),
        list(wanted.telling),
    )
    places = json.loads(done)
    if wanted.scope is not None:
        places["reasons"] = await connection.fetchval(SQL["erase_reasons"], wanted.scope)
    if features.erasing and wanted.about_somebody:
        ids = [row["id"] for row in await connection.fetch(SQL["not_live"], list(wanted.task_ids))]
        subject = subject_of(wanted.scope, ids, wanted.tombstone, wanted.rows)
        for name, texts in features.erasing.items():
            places[place_of(name)] = sum([touched(await connection.execute(text, subject)) for text in texts])
    return {place: n for place, n in places.items() if n}


# Applies what follows from moves that features react to, in their transaction: effects and arrivals at joins.

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
