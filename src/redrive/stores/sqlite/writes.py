"""Writes what a Commit has besides tasks, and what features add to moves: joins, postings, audit rows, erasures."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from redrive.errors import InvalidInput, StoreUnavailable, StoreUnusable
from redrive.kernel.audit import Audit
from redrive.kernel.erase import Erase, place_of, subject_of
from redrive.kernel.joins import NewJoin, as_document, check_joins, from_document
from redrive.kernel.ledger import Posting
from redrive.kernel.machine import Transition
from redrive.kernel.reactions import Landed, Rows, features_of, reaction_failed
from redrive.kernel.retry_guard import Withheld, by_feature
from redrive.kernel.task import NewTask, State
from redrive.stores.features import tell_conflicts
from redrive.stores.refusals import NEVER_NEGATIVE, below_zero, uncountable
from redrive.stores.sql import statements
from redrive.stores.sqlite.enqueue import add_members, enqueue
from redrive.stores.sqlite.errors import breaks_connection, is_busy, translate
from redrive.stores.sqlite.session import Session, dumps, inside

# Counts arrivals at joins: members arrive with their settlements, and the last one brings the tasks that follow.

JOINS = statements("redrive.stores.sqlite", "joins.sql")
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
            session.run(JOINS["arrive"], dumps([[join_id, *change] for join_id, change in changes.items()]))
            _end(session, changes)


def open_joins(session: Session, joins: Sequence[NewJoin]) -> None:
    """Opens joins; the end of one that belongs to another is a member of that from now on."""
    if not joins:
        return
    check_joins(joins)
    rows = [
        [
            str(join.id),
            int(join.open),
            _task_json(join.on_complete, "on_complete"),
            _task_json(join.on_success, "on_success"),
        ]
        for join in joins
    ]
    session.run(JOINS["open"], session.now, dumps(rows))
    outer = Counter(str(join.outer) for join in joins if join.outer is not None)
    if outer:
        add_members(lambda sql, args: session.rows(sql, *args), outer)


def opened_before(session: Session, joins: Sequence[NewJoin]) -> bool:
    """Returns whether an earlier try has opened these, and with that has brought in all of its Commit."""
    return bool(joins) and bool(session.rows(JOINS["known"], dumps([str(join.id) for join in joins])))


def close_joins(session: Session, join_ids: Iterable[UUID]) -> None:
    """Lets joins get no further members; those without any have ended."""
    ids = [str(join_id) for join_id in join_ids]
    if not ids:
        return
    for missing in set(ids) - {row[0] for row in session.rows(JOINS["known"], dumps(ids))}:
        raise InvalidInput(f"there is no join {missing}")
    session.run(JOINS["close"], dumps(ids))
    _end(session, ids)


def _end(session: Session, join_ids: Collection[str]) -> None:
    """Enqueues what follows, where the last member has come. Who enqueues it is the only one that sees it missing."""
    ended = session.rows(JOINS["ended"], dumps(list(join_ids)))
    if not ended:
        return
    session.run(JOINS["end"], session.now, dumps([row[0] for row in ended]))
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
    session.run(JOINS["fault"], f"{task.kind} was not enqueued: {why}"[:1000], join_id)


def _task_json(task: NewTask | None, what: str) -> str | None:
    document = as_document(task, what)
    return None if document is None else dumps(document)


# Posts movements of money.

_OVERFLOW = "REAL value in INTEGER column"  # what a sum beyond 2^63 becomes
LEDGER = statements("redrive.stores.sqlite", "apply.sql")


def post(session: Session, postings: Iterable[Posting]) -> set[str]:
    """Posts movements of money, each at most once; returns the keys that were posted before."""
    return {posting.key for posting in postings if not _post(session, posting)}


def _post(session: Session, posting: Posting) -> bool:
    sums: Counter[str] = Counter()
    for account, amount in posting.entries:
        sums[account] += amount
    if not session.run(LEDGER["posting"], posting.key, session.now, posting.note):
        before: Counter[str] = Counter()
        for account, amount in session.rows(LEDGER["posted"], posting.key):
            before[account] += amount
        if {name: n for name, n in before.items() if n} != {name: n for name, n in sums.items() if n}:
            raise InvalidInput(
                f"the key {posting.key!r} was posted before, with other entries",
                hint="a key names one movement of money, once",
            )
        return False
    changes = dumps(list(sums.items()))
    session.run(LEDGER["accounts"], changes)
    try:
        session.run(LEDGER["balances"], changes)
    except Exception as error:  # by whatever driver: the connection may be the caller's own
        if _OVERFLOW in str(error) and (full := session.row(LEDGER["uncountable"], changes)) is not None:
            raise uncountable(full[0]) from error
        if NEVER_NEGATIVE not in str(error):
            raise
        found = session.row(LEDGER["overdrawn"], changes)
        raise below_zero(found and found[0]) from error
    session.run(LEDGER["entries"], posting.key, dumps(posting.entries))
    return True


# Writes audit rows.

AUDIT = statements("redrive.stores.sqlite", "settle.sql")


def add_audits(session: Session, audits: Sequence[Audit]) -> None:
    if audits:
        session.run(AUDIT["audit"], session.now, dumps([_values(audit) for audit in audits]))


def _values(audit: Audit) -> list[Any]:
    task_id = None if audit.task_id is None else str(audit.task_id)
    return [
        audit.actor,
        audit.action,
        audit.reason,
        task_id,
        audit.bulk_id,
        audit.target,
        _json(audit.before),
        _json(audit.after),
        audit.scope,
    ]


def _json(value: object) -> str | None:
    return None if value is None else dumps(value)


# Erases personal data: see ``redrive.kernel.erase``.

ERASE = statements("redrive.stores.sqlite", "erase.sql")


def erase(session: Session, wanted: Erase) -> dict[str, int]:
    """Erases in the caller's transaction; returns how many, by place."""
    found = session.rows(ERASE["erase_ids"], dumps([str(task_id) for task_id in wanted.task_ids]))
    ids = dumps([row[0] for row in found])
    gone = session.rows(ERASE["erase_gone"], ids)
    keys = session.run(ERASE["erase_gone_keys"], dumps([row[0] for row in gone])) if gone else 0
    done = {
        "keys": keys + session.run(ERASE["erase_keys"], ids),
        "causes": session.run(ERASE["erase_causes"], ids, wanted.scope),
        "tasks": session.run(ERASE["erase_tasks"], ids, wanted.tombstone, session.now),
        "attempts": session.run(ERASE["erase_attempts"], ids),
        "dead_letters": session.run(ERASE["erase_letters"], ids, wanted.tombstone),
        "joins": 0 if wanted.scope is None else _erase_joins(session, wanted.scope),
        "holds": session.run(ERASE["erase_holds"], dumps(wanted.holds)),
        "audit": session.run(ERASE["erase_audit"], dumps(list(wanted.audit.items())), dumps(wanted.telling)),
    }
    if wanted.scope is not None:
        done["reasons"] = sum(session.run(ERASE[name], wanted.scope) for name in ("erase_circuits", "erase_drains"))
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
    for (outer,) in session.rows(ERASE["outer_joins"], scope):
        arrivals.move(outer, State.QUEUED, State.CANCELLED)
    erased = session.run(ERASE["erase_joins"], scope)
    arrivals.write(session)
    return erased


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


# Applies what follows from moves, in their transaction: arrivals at joins, and what features add.


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
