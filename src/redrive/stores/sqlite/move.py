"""Every transition but completion: requeue, fail, cancel, pause, resume, retry by an operator."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from redrive.kernel.audit import Audit, action_of
from redrive.kernel.machine import Attempts, Event, Meets, Transition, lands
from redrive.kernel.reactions import Landed
from redrive.kernel.task import HISTORY, State
from redrive.stores.sql import statements
from redrive.stores.sqlite.claim import free_places
from redrive.stores.sqlite.session import FORGOTTEN, HOUR, Row, Session, dumps, micros
from redrive.stores.sqlite.writes import Arrivals, add_audits, follow, withheld

SQL = statements("redrive.stores.sqlite", "settle.sql")
SESSION = statements("redrive.stores.sqlite", "session.sql")


@dataclass(slots=True)
class Live:
    """What a transition depends on, as the row has it now."""

    id: str
    state: str
    token: str | None
    expires_at: int | None
    cancel_at: int | None
    next_attempt_at: int | None
    queue: str
    kind: str
    attempt_count: int
    replay_count: int
    worker_id: str | None
    group: str | None
    error_code: str | None
    error_reason: str | None
    failure_type: str | None
    dead_reason: str | None
    fingerprint: str | None
    failed_seq: int | None
    scope: str | None
    max_attempts: int
    trace_id: str | None
    feature: str | None
    facts: str | None
    join_id: str | None
    retried_by: str | None


@dataclass(slots=True)
class Move:
    """A transition that applies, and the state it really leads to."""

    t: Transition
    row: Live
    final: State
    next_attempt_at: int | None = None
    alias: str | None = None  # the newest name of its cause, where that goes on under another one


def move(session: Session, transitions: Sequence[Transition]) -> set[UUID]:
    """Apply each transition whose row is in a source state and whose fence holds; answers the ids moved."""
    wanted = dumps([str(t.task_id) for t in transitions])
    live = {row[0]: Live(*row) for row in session.gathered(SQL["look"], wanted)}
    moves: list[Move] = []
    for t in transitions:
        row = live.get(str(t.task_id))
        if row is None or not _applies(t, row, session.now) or not (t.rule.quiet or _known(session, row.feature)):
            continue
        decided = _decide(t, row, session.now)
        if decided.final != row.state:
            # Taken out: a second transition of the same task meets a row that has already moved.
            del live[row.id]
            moves.append(decided)
            if decided.final is not t.to:
                session.instead[t.task_id] = decided.final
    moves = _let_go(session, moves)
    if moves:
        _use_known_causes(session, moves)
        _apply(session, moves)
    moved = {m.t.task_id for m in moves}
    back = [t for t in transitions if t.event is Event.REDRIVE and t.seen is None and t.task_id not in moved]
    return moved | _revive(session, back) if back else moved


def _let_go(session: Session, moves: list[Move]) -> list[Move]:
    """Leaves out retries that a feature withholds."""
    asked = [(m.t.task_id, m.row.feature, m.row.facts) for m in moves if m.t.event is Event.REDRIVE]
    found = withheld(session, asked)
    return [m for m in moves if m.t.task_id not in found] if found else moves


def _use_known_causes(session: Session, moves: Sequence[Move]) -> None:
    """Where a cause is not known yet, but an earlier version of the rules has made one for failures that look the same
    to everybody, the failure is counted there, so that its notes, mutes and owner stay."""
    failed = [(m, m.t.failure) for m in moves if m.t.failure is not None and m.t.failure.fingerprint >= "4"]
    if not failed:
        return
    asked = [(f.fingerprint, f.code, dumps(f.summary)) for _, f in failed]
    known: dict[str, str] = {}
    for name, cause in session.gathered(SQL["known_causes"], dumps(asked)):
        known.setdefault(name, cause)
    for m, f in failed:
        if (cause := known.get(f.fingerprint, f.fingerprint)) != f.fingerprint:
            m.alias = f.fingerprint
            m.t = replace(m.t, failure=replace(f, fingerprint=cause))


def _known(session: Session, feature: str | None) -> bool:
    """A task of a feature that this process does not know is left to one that does."""
    return feature is None or feature in session.features.reactions


def _applies(t: Transition, row: Live, now: int) -> bool:
    rule = t.rule
    if row.state not in t.origins or (rule.fenced and (t.token is None or row.token != str(t.token))):
        return False
    if t.seen is not None and row.failed_seq != t.seen:
        return False
    return not t.expired or (row.expires_at is not None and row.expires_at <= now)


def _decide(t: Transition, row: Live, now: int) -> Move:
    final = lands(t.event, t.to, _meets(row, now))
    if t.event in (Event.PAUSE, Event.RESUME) and final is not State.QUEUED:
        return Move(t, row, final, row.next_attempt_at)
    return Move(t, row, final, now + micros(t.delay) if final is State.DELAYED else None)


def _meets(row: Live, now: int) -> list[Meets]:
    early = row.next_attempt_at is not None and row.next_attempt_at > now
    asked = row.cancel_at is not None
    return [meets for meets, there in ((Meets.CANCEL_REQUESTED, asked), (Meets.EARLY, early)) if there]


def _apply(session: Session, moves: Sequence[Move]) -> None:
    gone = [m for m in moves if m.final in HISTORY]
    kept = [m for m in moves if m.final not in HISTORY]
    if gone:
        _retire(session, gone)
    if kept:
        _keep(session, kept)
    _record_failures(session, [m for m in moves if m.t.failure is not None])
    _count_failed(session, moves)
    dead = [[m.row.id, str(uuid4()), m.t.dead] for m in kept if m.t.dead is not None]
    if dead:
        session.run(SQL["dead_letters"], session.now, dumps(dead))
    _add_audits(
        session,
        ((m.t, {"state": m.row.state, "attempt_count": m.row.attempt_count}, {"state": m.final}) for m in moves),
    )
    for m in moves:
        session.tally.move(m.row.queue, m.row.kind, m.row.state, m.final)
        if _forgotten(m):
            session.tally.add(m.row.queue, m.row.kind, FORGOTTEN)
        _count_retry(session, m)
    free_places(session, Counter(m.row.kind for m in moves if m.row.state == State.RUNNING))
    _follow(session, moves)


def _retire(session: Session, gone: Sequence[Move]) -> None:
    kept = [m for m in gone if m.final is not State.COMPLETED or m.t.keep != 0]
    rows = [
        [
            m.row.id,
            m.final,
            m.t.execution_ms,
            m.t.reason,
            m.t.result,
            m.t.event,
            m.t.keep and micros(m.t.keep),
            int(_forgotten(m)),
        ]
        for m in kept
    ]
    session.run(SQL["retire"], session.now, dumps(rows))
    session.run(SQL["delete"], dumps([m.row.id for m in gone]))


def _forgotten(m: Move) -> bool:
    return m.t.forgotten and m.final is State.CANCELLED


def _count_retry(session: Session, m: Move) -> None:
    """Counts what became of a task that a bulk retry brought back. One that has failed stays so for it, whatever is
    done with it later."""
    by, tally = m.row.retried_by, session.tally
    if m.t.event is Event.REDRIVE:
        tally.retry(m.t.bulk_id, "retried")
        tally.retry(by, "again")
    if m.row.state == State.RUNNING:
        tally.retry(by, "running", -1)
    if m.t.event is not Event.REDRIVE and m.row.state != State.FAILED and m.final in (State.FAILED, *HISTORY):
        cause = m.t.failure.fingerprint if m.final is State.FAILED and m.t.failure is not None else ""
        tally.retry(by, m.final.value, 1, cause)


def _follow(session: Session, moves: Sequence[Move]) -> None:
    """What follows from these moves: arrivals at joins, and what features add to them."""
    arrivals = Arrivals()
    for m in moves:
        if m.row.join_id is not None:
            arrivals.move(m.row.join_id, m.row.state, m.final)
    told = [(m.t, _landed(m)) for m in moves if m.row.feature is not None and not m.t.rule.quiet]
    follow(session, told, arrivals)


def _landed(m: Move) -> Landed:
    row = m.row
    assert row.feature is not None
    return Landed(
        m.t.task_id,
        State(row.state),
        m.final,
        row.feature,
        _facts(row.facts),
        row.kind,
        row.queue,
        row.attempt_count,
        row.max_attempts,
        row.replay_count,
        row.group,
        row.scope,
        row.trace_id,
        _id(row.join_id),
    )


def _id(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def _facts(text: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {} if text is None else json.loads(text)
    return found


def _keep(session: Session, kept: Sequence[Move]) -> None:
    ready = sum(m.final is State.QUEUED for m in kept)
    position = session.positions(ready) if ready else 0
    failing = sum(m.final is State.FAILED for m in kept)
    failed = session.failed_places(failing) if failing else 0
    values: list[list[Any]] = []
    for m in kept:
        queued = m.final is State.QUEUED
        values.append(
            [
                m.row.id,
                m.t.event,
                m.final,
                position if queued else None,
                m.next_attempt_at,
                _attempts(m),
                m.t.actor if m.final is State.PAUSED else None,
                m.t.memo,
                m.t.actor,
                m.t.reason,
                session.now,
                _token_kept(m.t),
                failed if m.final is State.FAILED else None,
                m.t.dead,
                m.t.bulk_id,
                int(m.t.death),
                int(m.t.cut_off),
                *_failure(m.t),
            ]
        )
        failed += m.final is State.FAILED
        if queued:
            position += 1
            session.wakes.queues.add(m.row.queue)
        elif m.final is State.DELAYED and m.next_attempt_at is not None:
            session.wakes.due_at(m.next_attempt_at, session.now)
    session.run(SQL["move"], dumps(values))


def _attempts(m: Move) -> int:
    match m.t.rule.attempts:
        case Attempts.GIVE_BACK:
            return m.row.attempt_count - 1
        case Attempts.RESET:
            return 0
    return m.row.attempt_count


def _token_kept(t: Transition) -> str | None:
    """The token of the lease that was settled; none of one that ran out: whoever had it did not ask for that."""
    return str(t.token) if t.token is not None and t.rule.fenced and t.event is not Event.EXPIRE else None


def _failure(t: Transition) -> list[Any]:
    f = t.failure
    return [] if f is None else [f.code, f.reason, f.type, f.message, f.stack, f.fingerprint, dumps(f.summary)]


def _count_failed(session: Session, moves: Sequence[Move]) -> None:
    """What is failed now, by everything it is filtered by."""
    changes: Counter[tuple[Any, ...]] = Counter()
    for m in moves:
        row, f = m.row, m.t.failure
        if row.state == State.FAILED:
            changes[
                row.kind,
                row.queue,
                row.group or "",
                row.error_code,
                row.error_reason,
                row.failure_type,
                row.dead_reason,
                row.fingerprint,
            ] -= 1
        if m.final is State.FAILED:
            assert f is not None
            changes[row.kind, row.queue, row.group or "", f.code, f.reason, f.type, m.t.dead, f.fingerprint] += 1
    values = dumps([[*key, n] for key, n in changes.items() if n])
    if values != "[]":
        session.run(SESSION["failed_totals"], values)
        session.run(SESSION["failed_gone"], values)
        _sum_failed(session, changes)


_DIMENSIONS = ("kind", "queue", "group", "code", None, "type", "reason", "cause")  # of the totals' columns, in order


def _sum_failed(session: Session, changes: Counter[tuple[Any, ...]]) -> None:
    """The same by each of these alone."""
    sums: Counter[tuple[str, str]] = Counter()
    for key, n in changes.items():
        sums["total", ""] += n
        for dimension, value in zip(_DIMENSIONS, key, strict=True):
            if dimension is not None:
                sums[dimension, value] += n
    values = dumps([[*key, n] for key, n in sums.items() if n])
    session.run(SESSION["failed_sums"], values)
    session.run(SESSION["failed_sums_gone"], values)
    session.run(SESSION["failing"], dumps(list({key[-1] for key in changes})))


def _record_failures(session: Session, failed: Sequence[Move]) -> None:
    """Each failed attempt, and a count for its cause."""
    if not failed:
        return
    attempts = []
    causes: dict[str, list[Any]] = {}
    for m in failed:
        row, t, f = m.row, m.t, m.t.failure
        assert f is not None
        attempts.append(
            [
                row.id,
                _token_kept(t),
                t.execution_ms,
                row.attempt_count,
                row.replay_count,
                *_failure(t),
                row.worker_id,
                f.peer,
            ]
        )
        fresh = [
            f.fingerprint,
            0,
            f.code,
            f.reason,
            f.type,
            f.message,
            row.kind,
            row.id,
            session.now,
            dumps(f.summary),
            row.scope,
            m.alias,
        ]
        causes.setdefault(f.fingerprint, fresh)[1] += 1
    session.run(SQL["attempts"], session.now, dumps(attempts))
    session.run(SQL["causes"], dumps(list(causes.values())))
    hour = session.now - session.now % HOUR
    session.run(SQL["hours"], hour, dumps([cause[:2] for cause in causes.values()]))


def _add_audits(session: Session, moves: Iterable[tuple[Transition, dict[str, Any], dict[str, Any]]]) -> None:
    """Adds the rows of moves that somebody asked for: each with what the task was before and after."""
    rows = [
        Audit(t.actor, t.action or action_of(t.event), t.reason, t.task_id, t.bulk_id, before, after)
        for t, before, after in moves
        if t.actor is not None
    ]
    add_audits(session, rows)


def _revive(session: Session, transitions: Iterable[Transition]) -> set[UUID]:
    """An operator's retry of a cancelled task: back from history into the live table."""
    asked = {str(t.task_id): t for t in transitions}
    found: list[Row] = session.gathered(SQL["cancelled"], dumps(list(asked)))
    known = [row for row in found if _known(session, row[9])]
    kept = withheld(session, [(asked[row[1]].task_id, row[9], row[10]) for row in known])
    rows = [row for row in known if asked[row[1]].task_id not in kept]
    if not rows:
        return set()
    position = session.positions(len(rows))
    chosen = [asked[row[1]] for row in rows]
    values = [
        [row[0], position + nth, t.actor, t.reason, t.bulk_id]
        for nth, (row, t) in enumerate(zip(rows, chosen, strict=True))
    ]
    session.run(SQL["revive"], session.now, dumps(values))
    session.run(SQL["revived"], dumps([row[0] for row in rows]))
    arrivals, landed = Arrivals(), []
    for t, row in zip(chosen, rows, strict=True):
        queue, kind, join_id, attempts, most, replays, (group, scope, trace_id), feature, facts, forgotten = row[2:]
        session.tally.move(queue, kind, "cancelled", "queued")
        if forgotten:
            session.tally.add(queue, kind, FORGOTTEN, -1)
        session.tally.retry(t.bulk_id, "retried")
        session.wakes.queues.add(queue)
        if join_id is not None:
            arrivals.move(join_id, "cancelled", "queued")
        if feature is not None:
            landed.append(
                (
                    t,
                    Landed(
                        t.task_id,
                        State.CANCELLED,
                        State.QUEUED,
                        feature,
                        _facts(facts),
                        kind,
                        queue,
                        attempts,
                        most,
                        replays,
                        group,
                        scope,
                        trace_id,
                        _id(join_id),
                    ),
                )
            )
    _add_audits(session, ((t, {"state": State.CANCELLED}, {"state": State.QUEUED}) for t in chosen))
    follow(session, landed, arrivals)
    return {t.task_id for t in chosen}
