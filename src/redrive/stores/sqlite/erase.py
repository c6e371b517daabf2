"""Erases personal data: see ``redrive.kernel.erase``."""

from __future__ import annotations

from redrive.kernel.erase import Erase, place_of, subject_of
from redrive.kernel.task import State
from redrive.stores.sql import statements
from redrive.stores.sqlite.joins import Arrivals
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "erase.sql")


def erase(session: Session, wanted: Erase) -> dict[str, int]:
    """Erases in the caller's transaction; returns how many, by place."""
    found = session.rows(SQL["erase_ids"], dumps([str(task_id) for task_id in wanted.task_ids]))
    ids = dumps([row[0] for row in found])
    gone = session.rows(SQL["erase_gone"], ids)
    keys = session.run(SQL["erase_gone_keys"], dumps([row[0] for row in gone])) if gone else 0
    done = {
        "keys": keys + session.run(SQL["erase_keys"], ids),
        "causes": session.run(SQL["erase_causes"], ids, wanted.scope),
        "tasks": session.run(SQL["erase_tasks"], ids, wanted.tombstone, session.now),
        "attempts": session.run(SQL["erase_attempts"], ids),
        "dead_letters": session.run(SQL["erase_letters"], ids, wanted.tombstone),
        "joins": 0 if wanted.scope is None else _erase_joins(session, wanted.scope),
        "holds": session.run(SQL["erase_holds"], dumps(wanted.holds)),
        "audit": session.run(SQL["erase_audit"], dumps(list(wanted.audit.items())), dumps(wanted.telling)),
    }
    if wanted.scope is not None:
        done["reasons"] = sum(session.run(SQL[name], wanted.scope) for name in ("erase_circuits", "erase_drains"))
    if wanted.about_somebody:
        subject = subject_of(wanted.scope, [row[0] for row in found], wanted.tombstone, wanted.rows)
        for name, texts in session.features.erasing.items():
            done[place_of(name)] = sum(max(session.run(text, subject), 0) for text in texts)
    return {place: n for place, n in done.items() if n}


def erase_callbacks(session: Session, wanted: Erase | None) -> int:
    """Removes what joins would enqueue about a scope; returns how many. Called before anything is moved: a task that is
    given up may be the last that they wait for."""
    return 0 if wanted is None or wanted.callbacks is None else _erase_joins(session, wanted.callbacks)


def _erase_joins(session: Session, scope: str) -> int:
    """Removes what would be enqueued at the end of joins; a join that waits for it does not wait for ever."""
    arrivals = Arrivals()
    for (outer,) in session.rows(SQL["outer_joins"], scope):
        arrivals.move(outer, State.QUEUED, State.CANCELLED)
    erased = session.run(SQL["erase_joins"], scope)
    arrivals.write(session)
    return erased
