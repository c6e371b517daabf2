"""Counts arrivals at joins: members arrive with their settlements, and the last one brings the tasks that follow."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from redrive.kernel.joins import Join, NewJoin, as_document, from_document
from redrive.kernel.task import State
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import to_datetime
from redrive.stores.sqlite.enqueue import add_members, enqueue
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "joins.sql")
_COLUMN = {State.COMPLETED: 0, State.FAILED: 1, State.CANCELLED: 2}


class Arrivals:
    """Gathers changes of joins over all moves of a transaction: one update each."""

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def move(self, join_id: str, was: str, now: str, n: int = 1) -> None:
        """Notes that members left one state for another; only those in which a task has ended count."""
        for state, change in ((was, -n), (now, n)):
            if (column := _COLUMN.get(State(state))) is not None:
                self._changes[join_id][column] += change

    def write(self, session: Session) -> None:
        changes = {join_id: change for join_id, change in self._changes.items() if any(change)}
        if changes:
            session.run(SQL["arrive"], dumps([[join_id, *change] for join_id, change in changes.items()]))
            _end(session, changes)


def open_joins(session: Session, joins: Sequence[NewJoin]) -> None:
    """Opens joins; the end of one that belongs to another is a member of that from now on."""
    if not joins:
        return
    rows = [[str(join.id), int(join.open), _json(join.on_complete), _json(join.on_success)] for join in joins]
    session.run(SQL["open"], session.now, dumps(rows))
    outer = Counter(str(join.outer) for join in joins if join.outer is not None)
    if outer:
        add_members(lambda sql, args: session.rows(sql, *args), outer)


def close_joins(session: Session, join_ids: Iterable[UUID]) -> None:
    """Lets joins get no further members; those without any have ended."""
    ids = [str(join_id) for join_id in join_ids]
    if ids:
        session.run(SQL["close"], dumps(ids))
        _end(session, ids)


def _end(session: Session, join_ids: Collection[str]) -> None:
    """Enqueues what follows, where the last member has come. Who enqueues it is the only one that sees it missing."""
    ended = session.rows(SQL["ended"], dumps(list(join_ids)))
    if not ended:
        return
    session.run(SQL["end"], session.now, dumps([row[0] for row in ended]))
    following = [from_document(json.loads(text)) for _, *texts in ended for text in texts if text is not None]
    if not following:
        return
    answers, missing = enqueue(session, following, counted=True), Arrivals()
    for task, answer in zip(following, answers, strict=True):
        if task.join is not None and not answer.created:  # its key names other work: nobody will arrive for it
            missing.move(str(task.join), State.QUEUED, State.CANCELLED)
    missing.write(session)


def joins(session: Session, join_ids: Collection[UUID]) -> list[Join]:
    rows = session.rows(SQL["joins"], dumps([str(join_id) for join_id in join_ids]))
    return [
        Join(
            UUID(id_),
            total,
            completed,
            failed,
            cancelled,
            bool(is_open),
            to_datetime(created),
            None if ended is None else to_datetime(ended),
            None if succeeded is None else to_datetime(succeeded),
        )
        for id_, total, completed, failed, cancelled, is_open, created, ended, succeeded in rows
    ]


def _json(task: object) -> str | None:
    document = as_document(task)  # type: ignore[arg-type]
    return None if document is None else dumps(document)
