"""Applies what features add to moves, in the transaction of the moves."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from redrive.errors import ConfigError
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Effects, Landed, Rows, reaction_failed
from redrive.stores.sqlite.audit import add_audits, values
from redrive.stores.sqlite.enqueue import enqueue
from redrive.stores.sqlite.errors import breaks_connection, is_busy
from redrive.stores.sqlite.ledger import post
from redrive.stores.sqlite.session import Session, dumps


def react(session: Session, moves: Sequence[tuple[Transition, Landed]]) -> None:
    """Applies what the features return for these moves, all together."""
    if moves:
        _add_effects(session, session.features.reactions.effects_of(moves))


def _add_effects(session: Session, effects: Effects) -> None:
    if effects.tasks:
        enqueue(session, effects.tasks)
    for posting in effects.postings:
        post(session, posting)
    for rows in effects.rows:
        try:
            write_rows(session, [rows])
        except (sqlite3.Error, ConfigError, TypeError, ValueError) as error:
            if is_busy(error) or breaks_connection(error):
                raise  # nobody's fault here
            raise reaction_failed(f"the feature {rows.feature!r}", f"to write its {rows.statement}", error) from error
    add_audits(session, [values(audit) for audit in effects.audits])


def write_rows(session: Session, rows: Iterable[Rows]) -> None:
    """Writes rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        session.run(session.features.statement(part.feature, part.statement), dumps(part.values))
