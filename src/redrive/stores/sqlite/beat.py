"""Takes the beats that workers send apart from their ticks, and ends the leases of those that are silent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from redrive.kernel.ports.liveness import Beat, Dead, Gone, Heard, Judgement, Neighbour, Process, Silent
from redrive.stores.sql import statements
from redrive.stores.sqlite.clock import SECOND, micros
from redrive.stores.sqlite.session import Session, dumps

SQL = statements("redrive.stores.sqlite", "beat.sql")


def beat(session: Session, given: Beat) -> Heard:
    now, started, process = session.now, session.now - micros(given.age), given.process
    row = session.row(SQL["row"], given.worker_id)
    if row is not None and _same(process, Process(*row[:4])):
        stalled = round(given.stalled * 1000)
        identity = (given.worker_id, process.machine, process.birth)
        session.run(SQL["beat"], now, given.running, started, given.every_ms, stalled, *identity)
        declared, drain = row[4] is not None, row[5] is not None
    else:
        _join(session, given, started)
        declared = drain = False
    return Heard(_silent_in(session, given), declared, drain, _neighbours(session, given))


def _same(one: Process, other: Process) -> bool:
    """Returns whether they are one process. In containers host and pid are often the same for the next one."""
    known = one.machine is not None and other.machine is not None
    return one == other if known else (one.host, one.pid) == (other.host, other.pid)


def _join(session: Session, given: Beat, started: int) -> None:
    session.run(
        SQL["join"],
        given.worker_id,
        given.process.host,
        given.process.pid,
        dumps(given.queues),
        given.concurrency,
        given.running,
        given.version,
        started,
        session.now,
        round(given.tick_every * 1000),
        given.every_ms,
        round(given.stalled * 1000),
        given.process.machine,
        given.process.birth,
    )


def _silent_in(session: Session, given: Beat) -> float | None:
    """Returns the seconds until somebody may be judged, if that is before the next beat."""
    now, by = session.now, given.judgement
    at = _silent(session, given.worker_id, by).judged_at
    waits = [] if at is None or at > now + 1000 * given.every_ms else [(at - now) / SECOND]
    # What another process had under this name, which is silent if nobody has taken the name back for so long.
    if given.age <= by.dead_after + by.lease and (left := session.row(SQL["left_behind"], now, given.worker_id)):
        waits.append(max(by.dead_after_ms, 3 * given.every_ms) / 1000 - (now - left[0]) / SECOND)
    return min(waits, default=None)


def _neighbours(session: Session, given: Beat) -> dict[str, Neighbour]:
    process, by = given.process, given.judgement
    if process.machine is None:
        return {}
    since = session.now - 1000 * (by.dead_after_ms + by.lease_ms)
    rows = session.rows(SQL["neighbours"], process.machine, process.host, given.worker_id, since)
    return {
        id_: Neighbour(replace(process, pid=pid, birth=birth), (session.now - seen_at) / SECOND, beats_ms / 1000)
        for id_, pid, birth, seen_at, beats_ms in rows
    }


@dataclass(slots=True, frozen=True)
class _Member:
    """One of the fleet, as the statement of that name has it."""

    id: str
    seen_at: int
    silent_at: int
    late: bool
    beating_since: int
    began_long_before: bool


@dataclass(slots=True, frozen=True)
class _Silent:
    """Who of the fleet is silent, and from when on a worker may declare them dead; while nobody is silent, when
    somebody will be."""

    ids: Sequence[str] = ()
    judged_at: int | None = None
    cut_off: bool = False


def _silent(session: Session, judge_id: str, by: Judgement) -> _Silent:
    """Returns who is silent, for one that may judge. The rule is that of PostgreSQL's function redrive.silent, where
    its reasons are."""
    now, patience = session.now, 1000 * by.dead_after_ms
    fleet = [_Member(*row) for row in session.rows(SQL["fleet"], now, by.dead_after_ms, by.lease_ms)]
    judging_since = next((one.beating_since for one in fleet if one.id == judge_id), None)
    others = [one.silent_at for one in fleet if one.id != judge_id]
    if judging_since is None or not others:
        return _Silent()
    silent = [one for one in fleet if one.silent_at <= now]
    if not silent:
        return _Silent(judged_at=min(others))
    late = [one for one in fleet if one.late]
    on_time = [one for one in fleet if not one.late]
    heard = [one for one in on_time if one.beating_since <= now - patience]
    returned = [one for one in on_time if one.beating_since > now - patience and one.began_long_before]
    [(declared,)] = session.rows(SQL["cut_off_since"], now - 4 * patience)
    if len(late) + len(returned) + declared <= len(heard):
        return _Silent([one.id for one in silent], max(min(others), judging_since + patience))
    judged_at = max(min(one.seen_at for one in silent), judging_since) + 4 * patience
    return _Silent([one.id for one in silent if one.seen_at + 4 * patience <= now], judged_at, cut_off=True)


def end_leases(session: Session, of: Silent | Gone) -> dict[str, Dead]:
    """Ends the leases of silent workers, or of one whose process is gone, and returns those."""
    return _end_silent(session, of.worker_id, of.by) if isinstance(of, Silent) else _end_gone(session, of)


def _end_silent(session: Session, worker_id: str, by: Judgement) -> dict[str, Dead]:
    now = session.now
    judging = session.row(SQL["may_judge"], worker_id, now, by.dead_after_ms)
    if judging is None:
        return {}
    found: dict[str, Dead] = {}
    silent = _silent(session, worker_id, by)
    if silent.judged_at is not None and silent.judged_at <= now:
        for id_ in silent.ids:
            tasks = session.run(SQL["end_leases"], now, id_, None)
            session.run(SQL["declare_dead"], now, id_)
            if silent.cut_off:
                session.run(SQL["cut_off"], now, id_)
            found[id_] = Dead(tasks, silent.cut_off)
    started, every_ms = judging
    # What another process had under a name that was taken over since: that one would have taken it back by now.
    if started <= now - 1000 * max(by.dead_after_ms, 3 * every_ms):
        left = session.run(SQL["end_leases"], now, worker_id, started)
        found |= {worker_id: Dead(left)} if left else {}
    return found


def mark_waiting(session: Session, leases: Sequence[tuple[UUID, UUID]], waiting: bool) -> None:
    """Notes of tasks that their worker has them wait, or begins them now."""
    session.run(SQL["mark_waiting"], int(waiting), dumps([[str(id_), str(token)] for id_, token in leases]))


def note_build(session: Session, worker_id: str, build: str | None) -> None:
    """Notes which build of the application a worker runs."""
    session.run(SQL["note_build"], build, worker_id)


def _end_gone(session: Session, gone: Gone) -> dict[str, Dead]:
    worker_id, process = gone.worker_id, gone.process
    given = (process.host, process.pid, process.machine, process.birth)
    if not session.run(SQL["declare_gone"], session.now, worker_id, *given):
        return {}
    return {worker_id: Dead(session.run(SQL["end_leases"], session.now, worker_id, None))}
