"""Applies what follows from moves, in their transaction: arrivals at joins, and what features add."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from redrive.errors import StoreUnavailable, StoreUnusable
from redrive.kernel.audit import Audit
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Landed, Rows, features_of, reaction_failed
from redrive.kernel.retry_guard import Withheld, by_feature
from redrive.stores.features import tell_conflicts
from redrive.stores.sqlite.enqueue import enqueue
from redrive.stores.sqlite.errors import breaks_connection, is_busy, translate
from redrive.stores.sqlite.session import Session, dumps
from redrive.stores.sqlite.writes import Arrivals, add_audits, close_joins, open_joins, post

# Asks features which of their tasks are not to be retried, in the transaction of the retry.


def withheld(session: Session, tasks: Sequence[tuple[UUID, str | None, str | None]]) -> dict[UUID, Withheld]:
    """Returns those of these tasks, given with their feature and facts, that are withheld; the session notes them."""
    guards = session.features.guards
    known = [(task_id, of, {} if facts is None else json.loads(facts)) for task_id, of, facts in tasks if of in guards]
    found: dict[UUID, Withheld] = {}
    for feature, asked in by_feature(guards, known).items():
        cursor = session.connection.cursor()
        cursor.row_factory = sqlite3.Row
        statement = session.features.statement(feature, guards[feature].statement)
        found |= guards[feature].withheld([dict(row) for row in cursor.execute(statement, (dumps(asked),))])
    session.withheld |= found
    return found


def follow(session: Session, moves: Sequence[tuple[Transition, Landed]], arrivals: Arrivals) -> None:
    """Applies what the features return for these moves, all together, and the arrivals of all moves. New members come
    before arrivals: a join that gets one by the end of its last has not ended."""
    if not moves:
        arrivals.write(session)
        return
    effects, who = session.features.reactions.effects_of(moves), features_of(moves)
    conflicts: list[Audit] = []
    with _blaming(who, "to add tasks to its moves"):
        open_joins(session, effects.joins)
        if effects.tasks:
            conflicts = tell_conflicts(who, effects.tasks, enqueue(session, effects.tasks))
    arrivals.write(session)
    with _blaming(who, "to close its joins"):
        close_joins(session, [*effects.closes, *(join.id for join in effects.joins if not join.open)])
    with _blaming(who, "to move money"):
        post(session, effects.postings)
    for rows in effects.rows:
        with _blaming(f"the feature {rows.feature!r}", f"to write its {rows.statement}"):
            write_rows(session, [rows])
    with _blaming(who, "to write its audit rows"):
        add_audits(session, [*effects.audits, *conflicts])


@contextmanager
def _blaming(who: str, what: str) -> Iterator[None]:
    """Says of what goes wrong inside that a feature is to blame, unless nobody here is."""
    try:
        yield
    except (StoreUnavailable, StoreUnusable, MemoryError):
        raise
    except Exception as error:
        if is_busy(error) or breaks_connection(error):
            raise
        raise reaction_failed(who, what, translate(error, "the store")) from error


def write_rows(session: Session, rows: Iterable[Rows]) -> None:
    """Writes rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        session.run(session.features.statement(part.feature, part.statement), dumps(part.values))
