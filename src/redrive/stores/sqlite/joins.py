"""Counts arrivals at joins: members arrive with their settlements, and the last one brings the tasks that follow."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from redrive.errors import InvalidInput
from redrive.kernel.joins import Join, NewJoin, as_document, check_joins, from_document
from redrive.kernel.task import NewTask, State
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import to_datetime
from redrive.stores.sqlite.enqueue import add_members, enqueue
from redrive.stores.sqlite.errors import breaks_connection, is_busy
from redrive.stores.sqlite.session import Session, dumps, inside

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
    check_joins(joins)
    rows = [
        [str(join.id), int(join.open), _json(join.on_complete, "on_complete"), _json(join.on_success, "on_success")]
        for join in joins
    ]
    session.run(SQL["open"], session.now, dumps(rows))
    outer = Counter(str(join.outer) for join in joins if join.outer is not None)
    if outer:
        add_members(lambda sql, args: session.rows(sql, *args), outer)


def opened_before(session: Session, joins: Sequence[NewJoin]) -> bool:
    """Returns whether an earlier try has opened these, and with that has brought in all of its Commit."""
    return bool(joins) and bool(session.rows(SQL["known"], dumps([str(join.id) for join in joins])))


def close_joins(session: Session, join_ids: Iterable[UUID]) -> None:
    """Lets joins get no further members; those without any have ended."""
    ids = [str(join_id) for join_id in join_ids]
    if not ids:
        return
    for missing in set(ids) - {row[0] for row in session.rows(SQL["known"], dumps(ids))}:
        raise InvalidInput(f"there is no join {missing}")
    session.run(SQL["close"], dumps(ids))
    _end(session, ids)


def _end(session: Session, join_ids: Collection[str]) -> None:
    """Enqueues what follows, where the last member has come. Who enqueues it is the only one that sees it missing."""
    ended = session.rows(SQL["ended"], dumps(list(join_ids)))
    if not ended:
        return
    session.run(SQL["end"], session.now, dumps([row[0] for row in ended]))
    following = [(id_, from_document(json.loads(text))) for id_, *texts in ended for text in texts if text is not None]
    missing = Arrivals()
    for task in _not_enqueued(session, following):
        if task.join is not None:  # nobody will arrive for it
            missing.move(str(task.join), State.QUEUED, State.CANCELLED)
    missing.write(session)


def _not_enqueued(session: Session, following: Sequence[tuple[str, NewTask]]) -> list[NewTask]:
    """Enqueues what follows joins; returns what is not there then. It was checked when they were opened; what is
    refused all the same is noted, and does not hold up the member that came last."""
    if not following:
        return []
    try:
        answers = inside(session, lambda inner: enqueue(inner, [task for _, task in following], counted=True))
    except Exception as error:
        if is_busy(error) or breaks_connection(error):
            raise
        if len(following) > 1:
            return [task for each in following for task in _not_enqueued(session, [each])]
        ((join_id, task),) = following
        taken = "UNIQUE" in str(error)
        why = "its id is taken" if taken else f"the store refused it ({type(error).__name__})"
        _note_fault(session, join_id, task, why)
        return [task]
    for (join_id, task), answer in zip(following, answers, strict=True):
        if answer.conflict:
            _note_fault(session, join_id, task, "its idempotency key names other work")
    return [task for (_, task), answer in zip(following, answers, strict=True) if not answer.created]


def _note_fault(session: Session, join_id: str, task: NewTask, why: str) -> None:
    session.run(SQL["fault"], f"{task.kind} was not enqueued: {why}"[:1000], join_id)


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
            fault,
        )
        for id_, total, completed, failed, cancelled, is_open, created, ended, succeeded, fault in rows
    ]


def _json(task: NewTask | None, what: str) -> str | None:
    document = as_document(task, what)
    return None if document is None else dumps(document)
