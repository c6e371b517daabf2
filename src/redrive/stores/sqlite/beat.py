"""Takes the beats that workers send apart from their ticks, and ends the leases of those that are silent."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from redrive.kernel.ports.liveness import Beat, Heard, Judgement
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import SECOND, micros
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "beat.sql")


def beat(session: Session, given: Beat) -> Heard:
    now, started = session.now, session.now - micros(given.age)
    row = session.row(SQL["row"], given.worker_id)
    if row is not None and (row[0], row[1]) == (given.host, given.pid):
        stalled = round(given.stalled * 1000)
        session.run(SQL["beat"], now, given.running, started, given.every_ms, stalled, given.worker_id)
        declared, drain = row[2] is not None, row[3] is not None
    else:
        _join(session, given, started)
        declared = drain = False
    return Heard(_silent_in(session, given), declared, drain)


def _join(session: Session, given: Beat, started: int) -> None:
    session.run(
        SQL["join"],
        given.worker_id,
        given.host,
        given.pid,
        dumps(given.queues),
        given.concurrency,
        given.running,
        given.version,
        started,
        session.now,
        round(given.tick_every * 1000),
        given.every_ms,
        round(given.stalled * 1000),
    )


def _silent_in(session: Session, given: Beat) -> float | None:
    """Returns the seconds until somebody else is to be judged, if that is before the next beat."""
    now, by = session.now, given.judgement
    fleet = session.rows(SQL["fleet"], now, by.dead_after_ms, by.lease_ms)
    waits = [(at - now) / SECOND for id_, at in fleet if id_ != given.worker_id and at <= now + 1000 * given.every_ms]
    # What another process had under this name, which is silent if nobody has taken the name back for so long.
    if given.age <= by.dead_after + by.lease and (left := session.row(SQL["left_behind"], now, given.worker_id)):
        waits.append(max(by.dead_after_ms, 3 * given.every_ms) / 1000 - (now - left[0]) / SECOND)
    return min(waits, default=None)


def judge(session: Session, worker_id: str, by: Judgement) -> dict[str, int]:
    """Ends the leases of silent workers; returns how many each had. Nobody is declared dead while the judge has not
    itself beaten without a gap for as long as that takes, nor while most are silent at once."""
    now = session.now
    judging = session.row(SQL["may_judge"], worker_id, now, by.dead_after_ms)
    if judging is None:
        return {}
    found: dict[str, int] = {}
    fleet = session.rows(SQL["fleet"], now, by.dead_after_ms, by.lease_ms)
    silent = [id_ for id_, at in fleet if at <= now]
    if 2 * len(silent) <= len(fleet):
        for id_ in silent:
            found[id_] = session.run(SQL["end_leases"], now, id_, None)
            session.run(SQL["declare_dead"], now, id_)
    started, every_ms = judging
    # What another process had under a name that was taken over since: that one would have taken it back by now.
    if started <= now - 1000 * max(by.dead_after_ms, 3 * every_ms):
        left = session.run(SQL["end_leases"], now, worker_id, started)
        found |= {worker_id: left} if left else {}
    return found


def deaths(session: Session, ids: Sequence[UUID]) -> dict[UUID, int]:
    """Returns which of these tasks were aboard workers that were lost, and how many."""
    return {UUID(id_): count for id_, count in session.rows(SQL["deaths"], dumps([str(id_) for id_ in ids]))}


def set_apart(session: Session, leases: Sequence[tuple[UUID, UUID]], apart: bool) -> None:
    """Notes of tasks that their worker has them wait, or begins them now."""
    session.run(SQL["set_apart"], int(apart), dumps([[str(id_), str(token)] for id_, token in leases]))


def bury(session: Session, worker_id: str, host: str, pid: int) -> int:
    """Ends the leases of a worker whose process is known to be gone."""
    if not session.run(SQL["bury"], session.now, worker_id, host, pid):
        return 0
    return session.run(SQL["end_leases"], session.now, worker_id, None)
