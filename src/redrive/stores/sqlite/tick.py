"""Takes what workers send about themselves: ticks, with duties, and beats, by which others know that they live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from redrive.ids import from_text, is_id
from redrive.kernel.machine import ExpiredLease
from redrive.kernel.ports.liveness import (
    Beat,
    Dead,
    Gone,
    Heard,
    Judgement,
    Member,
    Neighbour,
    Process,
    Silent,
    SilentMembers,
    find_silent,
)
from redrive.kernel.ports.store import MOST_PROMOTED, Heartbeat, TickResult
from redrive.stores.sql import statements
from redrive.stores.sqlite.session import SECOND, Session, dumps, micros
from redrive.stores.sqlite.steady import REMOVING_DUTIES, steady

SQL = statements("redrive.stores.sqlite", "tick.sql")
SEEN_EVERY_US = 4_000_000
# Totals are kept directly, history is one table, and a tick promotes for all queues.
_NOTHING_TO_DO = frozenset({"fold", "partitions", "promote"})


def tick(session: Session, beat: Heartbeat) -> TickResult:
    _beat(session, beat)
    duties = _duties(session, beat)
    promoted, back = _promote(session), resume_groups(session)
    cancels = [from_text(row[0]) for row in session.rows(SQL["cancels"], beat.worker_id) if is_id(row[0])]
    ((due,),) = session.rows(SQL["next_due"], *[session.now] * 3)
    next_due = None if due is None else (due - session.now) / 1_000_000
    return TickResult(duties, cancels, 0.0 if back >= MOST_PROMOTED else next_due, promoted + back)


def _beat(session: Session, beat: Heartbeat) -> None:
    now, stopping = session.now, int(beat.stopping)
    seen = session.run(
        SQL["beat"], now, beat.running, stopping, beat.worker_id, now - SEEN_EVERY_US, stopping, beat.running
    )
    if not seen:
        session.run(
            SQL["join"],
            beat.worker_id,
            beat.host,
            beat.pid,
            dumps(beat.queues),
            beat.concurrency,
            beat.running,
            beat.version,
            now,
            now,
            stopping,
            round(beat.every * 1000),
        )
    sheet = beat.sheet
    if sheet is not None and session.run(SQL["sheet_new"], sheet.id, beat.worker_id):
        session.run(SQL["sheet"], now, sheet.text)


def _duties(session: Session, beat: Heartbeat) -> list[str]:
    """Returns the duties for this worker: each goes to one worker of the fleet per interval, and to nobody when there
    is nothing to do."""
    now = session.now
    left_out = _NOTHING_TO_DO if steady(session) else _NOTHING_TO_DO | REMOVING_DUTIES
    wanted = {name: micros(every) for name, every in beat.duties.items() if name not in left_out}
    session.run(SQL["duties_new"], now, dumps(list(wanted)))
    taken = {row[0] for row in session.rows(SQL["duties"], now, dumps(list(wanted.items())))}
    recovering = {name for name in taken if name == "recover" or name.startswith("recover:")}
    if recovering and session.row(SQL["any_expired"], now, _known(session)) is None:
        taken -= recovering
    for duty, (collection, state) in beat.while_records.items():
        if duty in taken and session.row(SQL["any_record"], collection, state) is None:
            taken.discard(duty)
    duties = [name for name in wanted if name in taken]
    if "cron" not in duties and session.row(SQL["any_schedule"], now) is not None:
        duties.append("cron")
    return duties


def _promote(session: Session) -> int:
    rows = session.rows(SQL["due"], session.now, MOST_PROMOTED)
    if not rows:
        return 0
    first = session.positions(len(rows))
    session.run(SQL["promote"], first, dumps([row[0] for row in rows]))
    for _, queue, kind in rows:
        session.tally.move(queue, kind, "delayed", "queued")
        session.wakes.queues.add(queue)
    return len(rows)


def resume_groups(session: Session) -> int:
    """Returns tasks of groups that are held no more to their queues, as many as nobody minds waiting for. Returns how
    many: a full piece means "call again"."""
    group = session.row(SQL["resuming"])
    if group is None:
        return 0
    rows = session.rows(SQL["held_back"], group[0], f"group:{group[0]}", MOST_PROMOTED)
    if len(rows) < MOST_PROMOTED:
        session.run(SQL["resumed"], group[0])
    if rows:
        first = session.positions(len(rows))
        session.run(SQL["let_go"], first, dumps([row[0] for row in rows]))
    for _, queue, kind in rows:
        session.tally.move(queue, kind, "paused", "queued")
        session.wakes.queues.add(queue)
    return len(rows)


def expired(session: Session, limit: int, feature: str | None) -> list[ExpiredLease]:
    rows = session.rows(SQL["expired"], session.now, feature, limit)
    for id_, token, *_ in rows:
        if not (is_id(id_) and is_id(token)):
            raise ValueError(f"{id_[:60]!r} or {token[:60]!r} is not an id as redrive writes it")
    return [
        ExpiredLease(
            UUID(id_),
            UUID(token),
            attempt,
            most,
            worker,
            None,
            feature,
            None,
            kind,
            queue,
            trace,
            ms and ms / 1000,
            (session.now - (began or session.now)) / SECOND,
            deaths,
            bool(unbegun),
            cut_offs,
        )
        for id_, token, attempt, most, worker, feature, kind, queue, trace, ms, began, deaths, unbegun, cut_offs in rows
    ]


def _known(session: Session) -> str:
    return dumps(session.features.reactions.names)


# Takes the beats that workers send apart from their ticks, and ends the leases of those that are silent.

BEAT = statements("redrive.stores.sqlite", "beat.sql")


def beat(session: Session, given: Beat) -> Heard:
    now, started, process = session.now, session.now - micros(given.age), given.process
    row = session.row(BEAT["row"], given.worker_id)
    if row is not None and _same(process, Process(*row[:4])):
        stalled = round(given.stalled * 1000)
        identity = (given.worker_id, process.machine, process.birth)
        session.run(BEAT["beat"], now, given.running, started, given.every_ms, stalled, *identity)
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
        BEAT["join"],
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
    if given.age <= by.dead_after + by.lease and (left := session.row(BEAT["left_behind"], now, given.worker_id)):
        waits.append(max(by.dead_after_ms, 3 * given.every_ms) / 1000 - (now - left[0]) / SECOND)
    return min(waits, default=None)


def _neighbours(session: Session, given: Beat) -> dict[str, Neighbour]:
    process, by = given.process, given.judgement
    if process.machine is None:
        return {}
    since = session.now - 1000 * (by.dead_after_ms + by.lease_ms)
    rows = session.rows(BEAT["neighbours"], process.machine, process.host, given.worker_id, since)
    return {
        id_: Neighbour(replace(process, pid=pid, birth=birth), (session.now - seen_at) / SECOND, beats_ms / 1000)
        for id_, pid, birth, seen_at, beats_ms in rows
    }


def _silent(session: Session, judge_id: str, by: Judgement) -> SilentMembers:
    fleet = [Member(*row) for row in session.rows(BEAT["fleet"], session.now, by.dead_after_ms, by.lease_ms)]
    return find_silent(fleet, judge_id, by, session.now, lambda since: session.rows(BEAT["cut_off_since"], since)[0][0])


def end_leases(session: Session, of: Silent | Gone) -> dict[str, Dead]:
    """Ends the leases of silent workers, or of one whose process is gone, and returns those."""
    return _end_silent(session, of.worker_id, of.by) if isinstance(of, Silent) else _end_gone(session, of)


def _end_silent(session: Session, worker_id: str, by: Judgement) -> dict[str, Dead]:
    now = session.now
    judging = session.row(BEAT["may_judge"], worker_id, now, by.dead_after_ms)
    if judging is None:
        return {}
    found: dict[str, Dead] = {}
    silent = _silent(session, worker_id, by)
    if silent.judged_at is not None and silent.judged_at <= now:
        for id_ in silent.ids:
            tasks = session.run(BEAT["end_leases"], now, id_, None)
            session.run(BEAT["declare_dead"], now, id_)
            if silent.cut_off:
                session.run(BEAT["cut_off"], now, id_)
            found[id_] = Dead(tasks, silent.cut_off)
    started, every_ms = judging
    # What another process had under a name that was taken over since: that one would have taken it back by now.
    if started <= now - 1000 * max(by.dead_after_ms, 3 * every_ms):
        left = session.run(BEAT["end_leases"], now, worker_id, started)
        found |= {worker_id: Dead(left)} if left else {}
    return found


def mark_waiting(session: Session, leases: Sequence[tuple[UUID, UUID]], waiting: bool) -> None:
    """Notes of tasks that their worker has them wait, or begins them now."""
    session.run(BEAT["mark_waiting"], int(waiting), dumps([[str(id_), str(token)] for id_, token in leases]))


def note_build(session: Session, worker_id: str, build: str | None) -> None:
    """Notes which build of the application a worker runs."""
    session.run(BEAT["note_build"], build, worker_id)


def _end_gone(session: Session, gone: Gone) -> dict[str, Dead]:
    worker_id, process = gone.worker_id, gone.process
    given = (process.host, process.pid, process.machine, process.birth)
    if not session.run(BEAT["declare_gone"], session.now, worker_id, *given):
        return {}
    return {worker_id: Dead(session.run(BEAT["end_leases"], session.now, worker_id, None))}
