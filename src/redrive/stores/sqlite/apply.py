"""Applies a Commit: tasks, and what operators, applications and features change besides them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

from redrive.kernel.applied import Applied
from redrive.kernel.audit import FOREIGN, UNUSABLE, Audit, BulkAction
from redrive.kernel.circuit import SetCircuit
from redrive.kernel.commit import (
    CancelRequest,
    CloseJoin,
    Commit,
    Control,
    Declare,
    Drain,
    Fire,
    Hold,
    KnownNames,
    Limit,
    Target,
)
from redrive.kernel.ports.store import ClaimRequest, Cycle
from redrive.kernel.records import Put
from redrive.kernel.task import Enqueued
from redrive.stores.features import Features, with_callbacks
from redrive.stores.refusals import changed_meanwhile, circuit_changed
from redrive.stores.rows import audit as audit_row
from redrive.stores.sql import statements
from redrive.stores.sqlite.bad_rows import settle_in_parts
from redrive.stores.sqlite.claim import claim
from redrive.stores.sqlite.codec import typed
from redrive.stores.sqlite.enqueue import enqueue, know_names
from redrive.stores.sqlite.session import Execute, Session, dumps, micros, to_micros
from redrive.stores.sqlite.settle import settle
from redrive.stores.sqlite.tick import resume_groups
from redrive.stores.sqlite.writes import (
    add_audits,
    close_joins,
    erase,
    erase_callbacks,
    open_joins,
    opened_before,
    post,
    write_rows,
)

SQL = statements("redrive.stores.sqlite", "apply.sql")


def apply(session: Session, commit: Commit, *, again: bool = False, careful: bool = False) -> Applied:
    """Applies everything of a Commit in the caller's transaction. ``careful``: one of its rows was refused before."""
    applied = Applied()
    if again and opened_before(session, commit.joins):
        applied.enqueued = [Enqueued(task.id) for task in commit.enqueues]
        return applied
    callbacks = erase_callbacks(session, commit.erase)
    open_joins(session, commit.joins)
    if commit.enqueues:
        applied.enqueued = enqueue(session, commit.enqueues, again=again)
        commit.check_conflicts(applied.enqueued)
    close_joins(session, [join.id for join in commit.joins if not join.open])
    if commit.transitions:
        if careful:
            applied.lost = settle_in_parts(session, commit.transitions, applied.refused, again=again)
        else:
            applied.lost = settle(session, commit.transitions, again=again)
        applied.instead, applied.withheld = session.instead, session.withheld
    if commit.bulk is not None:
        _conclude(session, commit.bulk, commit, applied)
    for control in commit.controls:
        _control(session, control, applied)
    for fire in commit.fires:
        if _fire(session, fire):
            applied.fired.add(fire.name)
    applied.repeated |= post(session, commit.postings)
    write_rows(session, commit.rows)
    add_audits(session, commit.audits)
    if commit.pruned:
        applied.pruned = {row[0] for row in session.rows(SQL["forget_audit"], dumps(list(commit.pruned)))}
    if commit.erase is not None:
        applied.erased = with_callbacks(erase(session, commit.erase), callbacks)
    if commit.conclusion is not None:
        _add_conclusion(session, commit.conclusion(applied), applied)
    for put in commit.puts:
        _put(session, put, applied)
    return applied


def _add_conclusion(session: Session, audits: Sequence[Audit], applied: Applied) -> None:
    ((before,),) = session.rows(SQL["last_audit"])
    add_audits(session, audits)
    cursor = session.connection.cursor()
    cursor.row_factory = sqlite3.Row
    applied.concluded = [audit_row(typed(row)) for row in cursor.execute(SQL["audit_after"], (before,))]


def _put(session: Session, put: Put, applied: Applied) -> None:
    expires, body = None if put.keep is None else session.now + micros(put.keep), put.resolve(applied)
    if body is None:
        return
    values = (put.state, session.now, expires, dumps(body), put.collection, put.id)
    done = (
        session.run(SQL["put"], *values, put.version)
        if put.version
        else session.run(SQL["put_new"], *values, session.now)
    )
    if not done:
        raise changed_meanwhile(put)


def _conclude(session: Session, bulk: BulkAction, commit: Commit, applied: Applied) -> None:
    """Adds an audit row for each task that was left alone, with the reason, and the summary of the bulk action."""
    lost = [t.task_id for t in commit.transitions if t.task_id in applied.lost]
    ids = dumps([str(task_id) for task_id in lost])
    rows = session.rows(SQL["states"], ids, ids) if lost else []
    known = session.features.reactions
    states = {id_: FOREIGN if feature and feature not in known else state for id_, state, feature in rows}
    applied.skipped = {
        task_id: UNUSABLE if task_id in applied.refused else states.get(str(task_id)) for task_id in lost
    } | applied.withheld
    audits = bulk.audits(len(commit.transitions) - len(lost), applied.skipped)
    add_audits(session, audits)


def _control(session: Session, control: Control, applied: Applied) -> None:
    match control:
        case Hold():
            if not _hold(session, control):
                applied.repeated.add(f"{control.target.value}:{control.name}")
        case SetCircuit():
            _set_circuit(session, control)
        case Limit():
            _limit(session, control)
        case CancelRequest():
            _request_cancel(session, control, applied)
        case Drain():
            if not _drain(session, control):
                applied.repeated.add(f"worker:{control.worker_id}")
        case Declare():
            _declare(session, control)
        case KnownNames():
            know_names(session, control)
        case CloseJoin():
            close_joins(session, [control.join_id])


def _hold(session: Session, hold: Hold) -> bool:
    """Pauses or resumes a queue, kind or group; False when it was so already."""
    target, name = hold.target.value, hold.name
    if hold.on:
        changed = session.run(SQL["hold_on"], target, name, hold.actor, hold.reason, session.now)
        if hold.target is Target.KIND:
            session.run(SQL["lane"], name)
        elif hold.target is Target.GROUP:
            session.run(SQL["stay"], name)
    else:
        changed = session.run(SQL["hold_off"], target, name)
        if hold.target is Target.GROUP:
            # A small group is back at once; of a large one the ticks bring piece after piece.
            session.run(SQL["resume"], name)
            resume_groups(session)
        session.wakes.anything = True
    if changed:
        add_audits(session, [hold.audit])
    return changed > 0


def _drain(session: Session, drain: Drain) -> bool:
    """Asks a worker to end; False if there is none of this name, or it was asked before."""
    if not session.run(SQL["drain"], session.now, drain.actor, drain.reason, drain.worker_id):
        return False
    add_audits(session, [drain.audit])
    return True


def _set_circuit(session: Session, new: SetCircuit) -> None:
    kinds, wait = dumps(list(new.kinds)), None if new.wait is None else micros(new.wait)
    values = (new.name, kinds, int(new.open), wait, new.reason, new.actor, new.failed_probes, new.opened, session.now)
    if not session.run(*((SQL["circuit"], *values, new.version) if new.version else (SQL["circuit_new"], *values))):
        raise circuit_changed(new.name)
    if new.open:
        session.run(SQL["lanes"], kinds)
    session.run(SQL["circuit_kinds"], new.name, kinds, int(new.open))
    if not new.open or new.wait == 0:
        session.wakes.anything = True


def _limit(session: Session, limit: Limit) -> bool:
    """Sets the limits of a kind. ``actor`` None: a worker's configuration, which never overrides an operator."""
    old = session.row(SQL["limit"], limit.kind)
    concurrency, rate_ms, actor = old or (None, None, None)
    same = old is not None and (concurrency, rate_ms) == (limit.concurrency, limit.rate_ms)
    if same or (limit.actor is None and actor is not None):
        return False
    session.run(SQL["limit_set"], limit.kind, limit.concurrency, limit.rate_ms, limit.actor)
    recount(session, limit.kind)
    if (audit := limit.audit(concurrency, rate_ms)) is not None:
        add_audits(session, [audit])
    session.wakes.anything = True
    return True


def recount(session: Session, kind: str) -> int:
    """Counts a kind's running tasks anew."""
    ((running,),) = session.rows(SQL["count_running"], kind)
    session.run(SQL["set_running"], running, kind, running)
    return int(running)


def recount_limited(session: Session) -> int:
    """Counts all limited kinds anew; returns by how much the counters were wrong."""
    return sum(abs(recount(session, kind) - before) for kind, before in session.rows(SQL["limited"]))


def _request_cancel(session: Session, request: CancelRequest, applied: Applied) -> None:
    """Who asked first is the one in the audit log."""
    found = session.rows(SQL["cancel_requested"], str(request.task_id))
    if not found:
        applied.lost.add(request.task_id)
        return
    session.wakes.cancel = True
    if found[0][0] is not None:
        applied.asked_before.add(request.task_id)
        return
    session.run(SQL["request_cancel"], session.now, str(request.task_id))
    add_audits(session, [request.audit])


def _declare(session: Session, declare: Declare) -> None:
    session.run(SQL["undeclare"], declare.owner, dumps([s.name for s in declare.schedules]))
    rows = [
        [
            s.name,
            s.kind,
            s.cron,
            s.timezone,
            s.missed,
            s.queue,
            s.payload,
            s.priority,
            s.max_attempts,
            to_micros(s.next_at),
        ]
        for s in declare.schedules
    ]
    if rows:
        session.run(SQL["declare"], declare.owner, dumps(rows))


def _fire(session: Session, fire: Fire) -> bool:
    """Marks a planned run as fired. True for exactly one caller per run, whose tasks are enqueued with it."""
    if not session.run(SQL["fire"], to_micros(fire.next_at), session.now, fire.name, to_micros(fire.seen)):
        return False
    if fire.tasks:
        enqueue(session, fire.tasks, fired=True)
    return True


# Settles and claims in one commit: the worker's hot loop.


def cycle(session: Session, commit: Commit, want: ClaimRequest | None, again: bool) -> Cycle:
    lost = _apply_in_cycle(session, commit, again)
    claimed = claim(session, want) if want is not None and want.count > 0 else []
    return Cycle(claimed, lost, instead=session.instead)


def _apply_in_cycle(session: Session, commit: Commit, again: bool) -> set[UUID]:
    if commit.only_transitions:
        return settle(session, commit.transitions, again=again) if commit.transitions else set()
    return apply(session, commit, again=again).lost


# Applies a Commit through anybody's driver, in a transaction that is theirs.


def apply_with(execute: Execute, commit: Commit, features: Features, now_us: int) -> Applied:
    """Applies what only adds; ``execute(sql, args)`` returns the rows, placeholders are ``?`` or ``?1``."""
    session = Session(cast(Any, _Connection(execute)), now_us, features)
    applied = apply(session, commit)
    session.tally.flush(execute)
    return applied


class _Connection:
    """As much of a ``sqlite3.Connection`` as a session needs."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute

    def execute(self, sql: str, args: tuple[Any, ...] = ()) -> _Result:
        return _Result(self._execute, list(self._execute(sql, args)))


class _Result:
    def __init__(self, execute: Execute, rows: list[Any]) -> None:
        self._execute = execute
        self._rows = rows

    def fetchall(self) -> list[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return self._rows[0] if self._rows else None

    @property
    def rowcount(self) -> int:
        ((changed,),) = self._execute("select changes()", ())
        return int(changed)
