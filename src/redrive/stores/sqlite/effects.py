"""Applies what features add to moves, in the transaction of the moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Effects, Landed, Rows
from redrive.stores.sqlite.audit import add_audits, values
from redrive.stores.sqlite.enqueue import enqueue
from redrive.stores.sqlite.ledger import post
from redrive.stores.sqlite.session import Session, dumps


def react(session: Session, moves: Sequence[tuple[Transition, Landed]]) -> None:
    """Applies what the features return for these moves, all together."""
    if moves:
        add_effects(session, session.features.reactions.effects_of(moves))


def add_effects(session: Session, effects: Effects) -> None:
    if effects.tasks:
        enqueue(session, effects.tasks)
    for posting in effects.postings:
        post(session, posting)
    write_rows(session, effects.rows)
    add_audits(session, [values(audit) for audit in effects.audits])


def write_rows(session: Session, rows: Iterable[Rows]) -> None:
    """Writes rows of the features' own tables: one statement for each kind of them."""
    for part in rows:
        session.run(session.features.statement(part.feature, part.statement), dumps(part.values))
